"""Injects the faults of ``--chaos`` into this process: a sink of its events, which the folder of snapshots asks, too.

``chaos/plan.py`` decides which fault is due. Each fault is logged before it is injected.
"""

import errno
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, BinaryIO, NoReturn

from paceline.chaos.fault_text import read_plan
from paceline.chaos.plan import FULL_FOR_SNAPSHOTS, Action, Fault, Moment, Phase
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.comm.world import World
from paceline.events.bus import bus
from paceline.events.worker_events import BatchDone, EpochBegan, Event, FaultInjected, FitBegan, FitEnded, StepDone
from paceline.store.folder import Folder
from paceline.store.shards import TENSORS_FILE, rank_folder
from paceline.store.staging import SNAPSHOT_PREFIX

_LOGGER = logging.getLogger("paceline")

_COMMITTED = re.compile(rf"{SNAPSHOT_PREFIX}\d+(-\S+)?", re.ASCII)
_SETTLING_SECONDS = 10.0
_POLL_SECONDS = 0.01
_FIRST_RESTART = 2


class Chaos:
    """The faults of one rank in one generation.

    Args:
        faults: The faults of this rank.
        generation: The number of the generation.
        rank: Which this is.
    """

    def __init__(self, faults: tuple[Fault, ...], generation: int, rank: int = 0) -> None:
        self._rank = rank
        self._pending = list(faults)
        self._generation = generation
        self._began_at: int | None = None
        self._full_for: set[str] | None = None
        """The unfinished snapshots that did not fit on the disk; None: the disk has room."""
        self._folder: Folder | None = None

    def keep(self, folder: Folder) -> None:
        """Remembers the folder of snapshots, for the fault that damages one."""
        self._folder = folder

    def __call__(self, event: Event) -> None:
        """A sink of this rank's events: injects the fault that is due."""
        match event:
            case FitBegan() if self._generation >= _FIRST_RESTART and self._began_at is None:
                self._inject_if_due(Moment(Phase.RESTART, 0))
            case EpochBegan(step=step) if self._began_at is None:
                self._begin(step)
            case StepDone(step=step):
                self._inject_if_due(Moment(Phase.STEP, step, step - event.num_steps))
                if event.is_last:
                    self._inject_if_due(Moment(Phase.END, step))
            case BatchDone(step=step, is_validation=True):
                self._inject_if_due(Moment(Phase.VALIDATION, step))
            case FitEnded(step=step, has_failed=False):
                self._inject_if_due(Moment(Phase.END, step))

    def _begin(self, step: int) -> None:
        """The first epoch begins after `step`; the state is restored."""
        self._began_at = step
        for fault in [fault for fault in self._pending if fault.is_missed(step)]:
            self._pending.remove(fault)
            _LOGGER.warning("chaos: %s is not injected: this generation begins after step %d", fault, step)
        self._inject_if_due(Moment(Phase.START, step))

    def writing(self, snapshot_step: int) -> None:
        """Half of a file of the snapshot of `snapshot_step` is written; in the thread that writes it."""
        self._inject_if_due(Moment(Phase.SNAPSHOT, snapshot_step))

    def is_due_in_writing(self, snapshot_step: int) -> bool:
        """Whether `writing` would inject a fault."""
        return self._due(Moment(Phase.SNAPSHOT, snapshot_step)) is not None

    def has_room(self, unfinished: str) -> bool:
        """Whether the disk has room for more of a snapshot that is written to the directory `unfinished`."""
        if self._full_for is None:
            return True
        if unfinished not in self._full_for and len(self._full_for) == FULL_FOR_SNAPSHOTS:
            self._full_for = None
            _LOGGER.warning("chaos: the disk has room again")
            return True
        if unfinished not in self._full_for:
            self._full_for.add(unfinished)
            _LOGGER.warning("chaos: no room for %s", unfinished)
        return False

    def _due(self, moment: Moment) -> Fault | None:
        began_at = self._began_at or 0
        return next((fault for fault in self._pending if fault.is_due(moment, began_at)), None)

    def _inject_if_due(self, moment: Moment) -> None:
        fault = self._due(moment)
        if fault is None:
            return
        self._pending.remove(fault)
        _LOGGER.warning("chaos: %s is injected after step %d", fault, moment.step)
        bus.emit(FaultInjected(self._rank, str(fault), "" if fault.server is None else str(fault.server)))
        if fault.server is None:  # else the launcher, which hears of it, ends the server
            self._inject(fault)

    def _inject(self, fault: Fault) -> None:
        match fault.action:
            case Action.KILL:
                _kill()
            case Action.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Action.TERM:
                os.kill(os.getpid(), signal.SIGTERM)
            case Action.EXCEPTION:
                raise RuntimeError(f"chaos: {fault}")
            case Action.DISK_FULL:
                self._full_for = set()
            case Action.SLOW:
                _slow_down(fault.factor)
            case Action.CORRUPT_SNAPSHOT:
                self._corrupt()
                _kill()

    def _corrupt(self) -> None:
        """Flips a bit in the newest snapshot, once none is being written that would become the newest."""
        assert self._folder is not None
        give_up_at = time.monotonic() + _SETTLING_SECONDS
        while self._folder.unpublished() and time.monotonic() < give_up_at:
            time.sleep(_POLL_SECONDS)
        names = [name for name in self._folder.children("") if _COMMITTED.fullmatch(name)]
        if not names:
            _LOGGER.warning("chaos: there is no snapshot to damage in %s", self._folder.location)
            return
        path = f"{names[-1]}/{rank_folder(0)}/{TENSORS_FILE}"
        with self._folder.reader(path) as file:
            content = bytearray(file.read())
        content[len(content) // 2] ^= 1
        with self._folder.writer(path) as changed:
            changed.write(content)
        _LOGGER.warning("chaos: one bit of %s/%s is flipped", self._folder.location, path)


def chaos_of(world: World, variables: Mapping[str, str]) -> Chaos:
    """The faults of this rank of `world`; none without ``--chaos``. The same object on each call."""
    identity = world.identity
    texts = read_variables(JobOptions, variables, "chaos").chaos
    return _chaos(world, texts, identity.generation, identity.seed, os.getpid())


@cache
def _chaos(world: World, texts: tuple[str, ...], generation: int, seed: int, pid: int) -> Chaos:
    del pid  # part of the cache key: a forked child must not inject the faults again
    if not texts:
        return Chaos((), generation)
    faults = read_plan(texts).faults_of(generation=generation, world_size=world.size, seed=seed)
    chaos = Chaos(tuple(fault for fault in faults if fault.rank == world.rank), generation, world.rank)
    bus.subscribe(chaos)
    return chaos


_PERIOD_SECONDS = 0.02

_STOP_AND_GO = f"""
import os, signal, sys, time
pid, stopped = int(sys.argv[1]), {_PERIOD_SECONDS} * (1 - 1 / float(sys.argv[2]))
while os.getppid() == pid:  # it has not ended
    os.kill(pid, signal.SIGSTOP)
    time.sleep(stopped)
    os.kill(pid, signal.SIGCONT)
    time.sleep({_PERIOD_SECONDS} - stopped)
"""


def _slow_down(factor: float) -> None:
    """From now on, and until it ends, all that this process does takes `factor` times as long.

    Another process stops it, and lets it go on, fifty times a second: so all of its threads are slow, and the kernel's
    numbers are those of a process that really is.
    """
    command = [sys.executable, "-I", "-S", "-c", _STOP_AND_GO, str(os.getpid()), str(factor)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process outlived SIGKILL")


_STEP = re.compile(rf"{SNAPSHOT_PREFIX}(\d+)", re.ASCII)


class FaultyFolder:
    """Passes everything on to `inner`, a `Folder`, and asks `chaos` before it writes a file of a snapshot."""

    def __init__(self, inner: Folder, chaos: Chaos) -> None:
        self._inner = inner
        self._chaos = chaos

    @contextmanager
    def writer(self, path: str) -> Iterator[BinaryIO]:
        """A file; a fault may be injected in the middle of it.

        Raises:
            OSError: with ``ENOSPC``, while the disk is full.
        """
        directory, _, rest = path.partition("/")
        step = _STEP.search(directory)
        if step is None:
            with self._inner.writer(path) as file:
                yield file
            return
        has_room = self._chaos.has_room(directory)
        is_due = rest.endswith(TENSORS_FILE) and self._chaos.is_due_in_writing(int(step[1]))
        with self._inner.writer(path) as file:
            if has_room and not is_due:
                yield file
                return
            yield _HalfWritten(file)  # type: ignore[misc]  # the store only writes
            if not has_room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self._chaos.writing(int(step[1]))

    def announce(self, path: str, data: bytes) -> None:
        """Tells who looks for it.

        Raises:
            OSError: with ``ENOSPC``, while the disk is full.
        """
        if not self._chaos.has_room(path.partition("/")[0]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._inner.announce(path, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _HalfWritten:
    """Accepts everything and writes half of each piece: the state of a file whose writer was killed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: bytes | memoryview) -> int:
        self._file.write(bytes(data)[: len(data) // 2])
        self._file.flush()
        return len(data)
