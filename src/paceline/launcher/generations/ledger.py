"""How much time of a job was lost to failures: a sink of its events.

steps    1 2 3 4 5 6 7 †          4 5 6 7 8 9
time     ├─────────────┤──────────────────┤──────►      lost: from the last step before a failure to the first new one
                        replayed: 3 steps
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from paceline.events.head_events import GenerationBegan, GenerationEnded, JobEnded, Recovered, Restarted
from paceline.events.worker_events import BatchDone, Event, StepDone, TrainingResumed


@dataclass(frozen=True, slots=True)
class _Failure:
    """A generation that ended before its time."""

    reason: str
    step: int
    """The last step that was told of."""
    at: float


class Ledger:
    """Keeps account of one job.

    >>> now, emitted = [0.0], []
    >>> ledger = Ledger(emitted.append, clock=lambda: now[0])
    >>> def hear(at, *events):
    ...     now[0] = at
    ...     for event in events:
    ...         ledger(event)
    >>> hear(0.0, GenerationBegan(1, num_workers=2))
    >>> hear(5.0, StepDone(0, step=10, epoch=0))
    >>> hear(5.5, GenerationEnded(1, 10, 137, "rank 1 was killed"), Restarted(2, 0.0))
    >>> hear(7.0, GenerationBegan(2, num_workers=2), TrainingResumed(0, 8, 0, 2, "s"))
    >>> emitted == [Recovered(2, 8, 2, 1.5, "rank 1 was killed at step 10")]
    True
    >>> hear(9.0, StepDone(0, step=11, epoch=0))
    >>> now[0] = 20.0
    >>> end = ledger.job_ended(exit_code=0)
    >>> end.num_steps, end.num_restarts, end.num_repeated_steps, end.lost_seconds, end.goodput
    (11, 1, 2, 4.0, 0.8)

    Args:
        emit: Is given the events that follow from others.
        clock: Seconds.
    """

    def __init__(self, emit: Callable[[Event], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._started_at = clock()
        self._num_workers = 0
        self._num_restarts = 0
        self._begun_after = 0
        """The step of an earlier run's snapshot that this run has gone on from."""
        self._first: tuple[int, float] | None = None
        """The first step that was told of, and when: what came before is start and tracing."""
        self._best_step = 0
        self._best_at = self._started_at
        self._failure: _Failure | None = None
        self._replayed = 0
        self._lost_seconds = 0.0
        self._behind = False

    def __call__(self, event: Event) -> None:
        """Takes the event into account."""
        match event:
            case GenerationBegan():
                self._num_workers, self._num_restarts = event.num_workers, event.generation - 1
            case StepDone() | BatchDone() if event.rank < self._num_workers:  # others' steps are none of the job
                self._stepped(event.step, self._clock())
            case GenerationEnded(reason=reason) if reason:
                reason += "" if event.step is None else f" at step {event.step}"
                self._failure = _Failure(reason, self._best_step, self._clock())
            case Restarted():
                self._behind = True
            case TrainingResumed(rank=0):
                self._resumed(event, self._clock())

    def _stepped(self, step: int, now: float) -> None:
        self._first = self._first or (step, now)
        if step <= self._best_step:
            return
        if self._behind:
            self._behind = False
            self._lost_seconds += now - self._best_at
        self._best_step, self._best_at = step, now

    def _resumed(self, resumed: TrainingResumed, now: float) -> None:
        failure, self._failure = self._failure, None
        if failure is None:  # a new run of a job that had ended: its workers say so
            self._begun_after = self._best_step = max(resumed.step, self._best_step)
            self._best_at = now
            return
        lost = max(0, failure.step - resumed.step)
        self._replayed += lost
        self._emit(Recovered(resumed.generation, resumed.step, lost, now - failure.at, failure.reason))

    def job_ended(self, exit_code: int) -> JobEnded:
        """What the job has done, and what its restarts have cost."""
        now = self._clock()
        seconds = max(now - self._started_at, 1e-9)
        lost = self._lost_seconds + (now - self._best_at if self._behind else 0.0)
        rate = None
        if self._first is not None and self._best_step > self._first[0] and self._best_at > self._first[1]:
            rate = (self._best_step - self._first[0]) / (self._best_at - self._first[1])
        return JobEnded(
            exit_code,
            seconds=seconds,
            num_steps=0 if self._first is None else self._best_step - self._begun_after,
            steps_per_second=rate,
            num_restarts=self._num_restarts,
            num_repeated_steps=self._replayed,
            lost_seconds=lost,
            goodput=1 - lost / seconds,
        )
