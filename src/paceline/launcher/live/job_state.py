"""What a job does now, from its events. Pure: times are arguments.

    events of the head and of workers ──► `JobState.hear` ──► `JobState.status`: a record

A step is heard of twenty times a second and rank, so `hear` only notes, and `status` puts together.
"""

import math
import signal
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import structs

from paceline.events.head_events import (
    GenerationBegan,
    GenerationEnded,
    HangFound,
    HostLost,
    JobEnded,
    LastWorkBegan,
    PreemptionBegan,
    RankEnded,
    RanksWaiting,
    Restarted,
    StopBegan,
    StuckFound,
    WorkerStarted,
)
from paceline.events.worker_events import (
    BatchDone,
    EpochBegan,
    EpochEnded,
    Event,
    FitBegan,
    FitEnded,
    OfRank,
    Preempted,
    SnapshotFailed,
    SnapshotTaken,
    StepDone,
    StepsTimed,
    StragglerFound,
    TraceBegan,
    TrainingResumed,
)
from paceline.launcher.live.job_status import JobStatus, WorkerStatus

RATE_SECONDS = 10.0
"""Steps of the last so many seconds count for the rate, or the last two that were heard of."""

_CHIEF = 0
_WAITING, _TRACING, _RUNNING = "waiting", "tracing", "running"
_WAITING_SECONDS = 15.0
"""`RanksWaiting` comes every ten seconds, while ranks wait."""

_STATES: Mapping[type[Event], str] = {
    FitBegan: "building",
    TraceBegan: _TRACING,
    TrainingResumed: "resuming",
    EpochBegan: "training",
    StepDone: "training",
    EpochEnded: "training",
    FitEnded: "between fits",
    Preempted: "stopping",
}
"""What a worker does after an event of it. Others change nothing."""

_PHASES: Mapping[type[Event], str] = {
    GenerationBegan: "",
    Restarted: "restarting",
    PreemptionBegan: "stopping",
    StopBegan: "stopping",
    GenerationEnded: "ending",
    LastWorkBegan: "last work",
    JobEnded: "ended",
}
"""What the whole job does after an event; empty: what its workers do."""

_NONE_YET = GenerationBegan(1, num_workers=0)

Kind = TypeVar("Kind", bound=Event)


@dataclass(slots=True)
class JobState:
    """A job, as far as its events have told.

    Args:
        job_id: Its name.
        program: What the workers run.
        host: Where the launcher runs.
        pid: The launcher's.
        max_restarts: How many restarts there may be.
        began_at: When the launcher has begun, in seconds of the clock of `hear` and `status`.
    """

    job_id: str
    program: str
    host: str
    pid: int
    max_restarts: int
    began_at: float
    _phase: str = "connecting"
    _generation: GenerationBegan = _NONE_YET
    _workers: dict[int, WorkerStatus] = field(default_factory=dict)
    _steps: deque[tuple[float, int]] = field(default_factory=deque)
    """When the chief told of which step, in this generation."""
    _epoch: int | None = None
    _last: dict[type[Event], Event] = field(default_factory=dict)
    """What the chief told last, of each kind."""
    _snapshot_at: float | None = None
    _num_snapshots: int = 0
    _num_failed_snapshots: int = 0
    _failure: str = ""
    _ended: set[int] = field(default_factory=set)
    """Ranks of this generation that have ended."""
    _waited_at: float = -math.inf
    """When the launcher last told of ranks that wait."""

    def hear(self, event: Event, now: float) -> None:
        """Something has happened."""
        self._phase = _PHASES.get(type(event), self._phase)
        match event:
            case WorkerStarted(rank=rank):
                own = rank if rank < self._generation.num_workers else None
                self._workers[rank] = WorkerStatus(event.process, own, event.host, event.pid)
            case OfRank(rank=rank):
                self._hear_worker(event)
                if rank == _CHIEF:
                    self._hear_chief(event, now)
            case GenerationBegan():
                self._generation, self._workers, self._ended = event, {}, set()
                self._steps.clear()
                self._forget_times()
            case GenerationEnded(reason=reason):
                self._failure = reason
            case RanksWaiting(waiting=ranks):
                self._set(ranks, _WAITING)
                self._waited_at = now
            case HangFound(ranks=ranks):
                self._set(ranks, "hanging")
            case StuckFound(process=process):
                self._set([rank for rank, one in self._workers.items() if one.process == process], "hanging")
            case HostLost(ranks=ranks):
                self._set(ranks, "lost")

    def _set(self, ranks: Iterable[int], state: str, step: int | None = None) -> None:
        for rank in ranks:
            if (one := self._workers.get(rank)) is not None:
                self._workers[rank] = structs.replace(one, state=state, step=one.step if step is None else step)

    def _hear_worker(self, event: OfRank) -> None:
        match event:
            case RankEnded(exit_code=code):
                self._set([event.rank], _end_text(code))
                self._ended.add(event.rank)
            case BatchDone(is_validation=is_validation):
                self._set([event.rank], "validating" if is_validation else "evaluating")
            case SnapshotFailed():
                self._num_failed_snapshots += 1
            case StepDone(step=step):
                self._set([event.rank], _STATES[StepDone], step)
            case _ if (state := _STATES.get(type(event))) is not None:
                self._set([event.rank], state)

    def _hear_chief(self, event: OfRank, now: float) -> None:
        self._last[type(event)] = event
        match event:
            case StepDone(step=step, epoch=epoch):
                self._epoch = epoch
                self._steps.append((now, step))
                while len(self._steps) > 2 and now - self._steps[0][0] > RATE_SECONDS:
                    self._steps.popleft()
            case EpochBegan(epoch=epoch):
                self._epoch = epoch
            case FitBegan():
                self._forget_times()
            case StepsTimed(waits_for=rank):
                if (slow := self._last_of(StragglerFound)) is not None and slow.straggler != rank:
                    del self._last[StragglerFound]  # the others wait for that rank no more
            case SnapshotTaken():
                self._snapshot_at = now
                self._num_snapshots += 1

    def _forget_times(self) -> None:
        for kind in (StepsTimed, StragglerFound):
            self._last.pop(kind, None)

    def status(self, now: float) -> JobStatus:
        """The job at the time `now`."""
        if now - self._waited_at > _WAITING_SECONDS:  # nobody tells that all have come
            self._set([rank for rank, one in self._workers.items() if one.state == _WAITING], _RUNNING)
        step_at, step = self._steps[-1] if self._steps else (None, None)
        return JobStatus(
            job_id=self.job_id,
            program=self.program,
            state=self._state(),
            seconds=now - self.began_at,
            host=self.host,
            pid=self.pid,
            generation=self._generation.generation,
            num_workers=self._generation.num_workers,
            workers=tuple(one for _, one in sorted(self._workers.items())),
            epoch=self._epoch,
            step=step,
            steps_per_second=self._rate(now),
            step_age_seconds=None if step_at is None else now - step_at,
            epoch_ended=self._last_of(EpochEnded),
            num_snapshots=self._num_snapshots,
            snapshot=self._last_of(SnapshotTaken),
            snapshot_age_seconds=None if self._snapshot_at is None else now - self._snapshot_at,
            num_failed_snapshots=self._num_failed_snapshots,
            num_restarts=self._generation.generation - 1,
            max_restarts=self.max_restarts,
            failure=self._failure,
            step_times=self._last_of(StepsTimed),
            straggler=self._last_of(StragglerFound),
        )

    def _last_of(self, kind: type[Kind]) -> Kind | None:
        event = self._last.get(kind)
        return event if isinstance(event, kind) else None

    def _state(self) -> str:
        """Of the whole job: what all wait for, else what the chief does, or the first rank that has not ended."""
        ranks = [(rank, one.state) for rank, one in sorted(self._workers.items()) if one.rank is not None]
        states = [state for rank, state in ranks if rank not in self._ended] or [state for _, state in ranks]
        common = [state for state in (_WAITING, _TRACING) if state in states]
        return self._phase or next(iter([*common, *states]), "starting")

    def _rate(self, now: float) -> float | None:
        if len(self._steps) < 2:
            return None
        (began, first), (ended, last) = self._steps[0], self._steps[-1]
        # Steps may take longer than these seconds; where nothing is heard for longer than that, the rate falls.
        ended = ended if now - ended <= max(RATE_SECONDS, ended - began) else now
        return (last - first) / (ended - began) if ended > began else None


def _end_text(exit_code: int) -> str:
    """
    >>> _end_text(0), _end_text(3), _end_text(-9), _end_text(-99)
    ('ended', 'failed (3)', 'killed (SIGKILL)', 'killed (99)')
    """
    if exit_code >= 0:
        return f"failed ({exit_code})" if exit_code else "ended"
    known = {number.value: number.name for number in signal.Signals}
    return f"killed ({known.get(-exit_code, -exit_code)})"
