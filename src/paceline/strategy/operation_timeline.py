"""``--timeline STEPS``: TensorFlow's operations in some steps of this rank, for the timeline of all ranks.

the step before the first one is done, or `fit` begins ─► TensorFlow's profiler begins
the last one is done, or `fit` ends ────────────────────► it ends ─► a file of the records (`observe/step_files.py`)
"""

import atexit
import logging
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

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


def keep_operations(world: World, folder: Path, steps: range) -> None:
    """From now on waits for the steps of ``--timeline``.

    Args:
        world: Whose rank this is.
        folder: That of ``--observe``.
        steps: Optimizer steps of the job.
    """
    timeline = _Timeline(world, folder, steps)
    bus.subscribe(guarded(timeline.hear))
    atexit.register(timeline.close)


class ProfiledSteps:
    """When a profile of some steps begins and ends, once; pure.

    Args:
        steps: Optimizer steps of the job, in a row.
    """

    def __init__(self, steps: range) -> None:
        self.steps = steps
        self.is_going_on = False
        self.is_over = False

    def hear(self, event: Event) -> Literal["begin", "end"] | None:
        """What is to be done now."""
        if self.is_over or not isinstance(event, FitBegan | TrainingResumed | StepDone | FitEnded):
            return None
        is_behind = event.step >= self.steps[-1]
        if self.is_going_on:
            if not is_behind and not isinstance(event, FitEnded):
                return None
            self.is_going_on, self.is_over = False, True
            return "end"
        self.is_over = is_behind  # an earlier generation has made them
        self.is_going_on = event.step + 1 in self.steps and not isinstance(event, FitEnded)
        return "begin" if self.is_going_on else None


class _Timeline:
    """Profiles the steps, and keeps the operations.

    Args:
        world: Whose rank this is.
        folder: That of ``--observe``.
        steps: Optimizer steps of the job.
    """

    def __init__(self, world: World, folder: Path, steps: range) -> None:
        self._world = world
        self._folder = folder
        self._steps = ProfiledSteps(steps)
        self._profile: tempfile.TemporaryDirectory[str] | None = None
        """Where TensorFlow writes, while it profiles."""

    def hear(self, event: Event) -> None:
        """A sink of this process's events."""
        match self._steps.hear(event):
            case "begin":
                self._begin()
            case "end":
                self._end()

    def close(self) -> None:
        """The script has come to its end."""
        if self._steps.is_going_on:
            self._end()
        elif not self._steps.is_over:
            self._tell(f"the job has not made step {self._steps.steps[0]}")

    def _begin(self) -> None:
        profile = tempfile.TemporaryDirectory(prefix="paceline-profile-", ignore_cleanup_errors=True)
        try:
            tf.profiler.experimental.start(profile.name)
        except (tf.errors.OpError, RuntimeError):
            profile.cleanup()
            self._tell("a profiler of the script, such as TensorBoard's profile_batch, runs in these steps")
        else:
            self._profile = profile

    def _end(self) -> None:
        profile, self._profile = self._profile, None
        if profile is None:
            return
        try:
            tf.profiler.experimental.stop()
            files = sorted(Path(profile.name).rglob("*.xplane.pb"))
            self._write([one for file in files for one in operations_in(file.read_bytes())])
        except (tf.errors.OpError, RuntimeError, OSError) as fault:
            self._tell(f"they could not be kept: {fault}")
        finally:
            profile.cleanup()

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
                self._steps.steps[0],
                self._steps.steps[-1],
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
