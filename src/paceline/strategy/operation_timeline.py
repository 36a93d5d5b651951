"""``--timeline STEPS``: TensorFlow's operations in some steps of this rank, for the timeline of all ranks.

the step before the first one is done, or `fit` begins ─► TensorFlow's profiler begins
the last one is done, or `fit` ends ────────────────────► it ends ─► a file of the records (`observe/step_files.py`)
"""

import atexit
import contextlib
import logging
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from paceline.comm.world import World
from paceline.events.bus import bus, guarded
from paceline.events.worker_events import Event, FitBegan, FitEnded, StepDone, TrainingResumed
from paceline.observe.step_files import OPERATION, RANKS, Header, head_of, name_of
from paceline.strategy.compat import XSpace

_LOGGER = logging.getLogger("paceline")

_MAX_OPERATIONS = 200_000
"""6.4 MB; of more the longest are kept."""
_SHORTEST_NS = 1_000
"""What is shorter has no place in a timeline of whole microseconds."""


class Operation(NamedTuple):
    """An operation, or what else a thread has done; nanoseconds since 1970."""

    thread: str
    name: str
    began: int
    ended: int


def keep_operations(world: World, folder: Path, steps: str) -> None:
    """From now on waits for the steps of ``--timeline``.

    Args:
        world: Whose rank this is.
        folder: That of ``--observe``.
        steps: A step, or the first and the last one with a colon.
    """
    first, _, last = steps.partition(":")
    timeline = _Timeline(world, folder, int(first), int(last or first))
    bus.subscribe(guarded(timeline.hear))
    atexit.register(timeline.close)


class _Timeline:
    """Profiles the steps from `first` to `last`, once.

    Args:
        world: Whose rank this is.
        folder: That of ``--observe``.
        first: Optimizer step of the job.
        last: The same.
    """

    def __init__(self, world: World, folder: Path, first: int, last: int) -> None:
        self._world = world
        self._folder = folder
        self._steps = range(first, last + 1)
        self._profile: tempfile.TemporaryDirectory[str] | None = None
        self._is_over = False

    def hear(self, event: Event) -> None:
        """A sink of this process's events."""
        if self._is_over or not isinstance(event, FitBegan | TrainingResumed | StepDone | FitEnded):
            return
        is_behind = event.step >= self._steps[-1]
        if self._profile is not None:
            if is_behind or isinstance(event, FitEnded):
                self._end()
        elif is_behind:
            self._is_over = True  # an earlier generation has made them
        elif event.step + 1 in self._steps and not isinstance(event, FitEnded):
            self._begin()

    def close(self) -> None:
        """The script has come to its end."""
        if self._profile is not None:
            self._end()
        elif not self._is_over:
            self._tell(f"the job has not made step {self._steps[0]}")

    def _begin(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="paceline-profile-")
        try:
            tf.profiler.experimental.start(self._profile.name)
        except (tf.errors.OpError, RuntimeError):
            self._forget()
            self._tell("a profiler of the script, such as TensorBoard's profile_batch, runs in these steps")

    def _end(self) -> None:
        assert self._profile is not None
        try:
            tf.profiler.experimental.stop()
            files = sorted(Path(self._profile.name).rglob("*.xplane.pb"))
            self._write([one for file in files for one in operations_in(file.read_bytes())])
        except (tf.errors.OpError, RuntimeError, OSError) as fault:
            self._tell(f"they could not be kept: {fault}")
        finally:
            self._forget()

    def _forget(self) -> None:
        self._is_over = True
        if self._profile is not None:
            with contextlib.suppress(OSError):
                self._profile.cleanup()
            self._profile = None

    def _write(self, operations: Sequence[Operation]) -> None:
        kept = sorted(operations, key=lambda one: one.began - one.ended)[:_MAX_OPERATIONS]
        names = {name: number for number, name in enumerate(dict.fromkeys(name for one in kept for name in one[:2]))}
        identity, monotonic, wall = self._world.identity, time.perf_counter_ns(), time.time_ns()
        rows = [
            (names[one.thread], names[one.name], one.began - wall + monotonic, one.ended - wall + monotonic)
            for one in kept
        ]
        header = Header(
            identity.job_id,
            identity.rank,
            identity.generation,
            socket.gethostname(),
            tuple(names),
            len(OPERATION),
            monotonic,
            wall,
        )
        path = self._folder / RANKS / name_of(identity.rank, identity.generation, "operations")
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        partial.write_bytes(head_of(header) + np.array(rows, "<i8").tobytes())
        partial.replace(path)

    def _tell(self, reason: str) -> None:
        if self._world.is_chief:
            _LOGGER.warning(
                "--timeline %d:%d: no operations of these steps: %s [observe]",
                self._steps[0],
                self._steps[-1],
                reason,
            )


def operations_in(profile: bytes) -> Iterator[Operation]:
    """What a profile of TensorFlow has of the threads of hosts and of devices.

    Args:
        profile: An ``XSpace`` (https://github.com/openxla/xla/blob/main/third_party/tsl/tsl/profiler/protobuf/xplane.proto).
    """
    space = XSpace.FromString(profile)
    profile_began = _began(space)
    for plane in space.planes:
        if not plane.name.startswith(("/host:", "/device:")):
            continue
        names = {number: one.display_name or one.name for number, one in plane.event_metadata.items()}
        for line in plane.lines:
            thread = line.display_name or line.name or str(line.id)
            where = thread if plane.name == "/host:CPU" else f"{plane.name} {thread}"
            for event in line.events:
                began = line.timestamp_ns + event.offset_ps // 1000
                began += profile_began if began < profile_began else 0  # TensorFlow 2.21 counts from there
                if event.duration_ps >= 1000 * _SHORTEST_NS:
                    yield Operation(where, names[event.metadata_id], began, began + event.duration_ps // 1000)


def _began(space: Any) -> int:
    """When the profile began, in nanoseconds since 1970; 0: it does not say so."""
    for plane in space.planes:
        names = {number: one.name for number, one in plane.stat_metadata.items()}
        for stat in plane.stats:
            if names.get(stat.metadata_id) == "profile_start_time":
                return int(stat.uint64_value)
    return 0
