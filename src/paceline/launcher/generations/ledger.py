"""What a job has done, where its time went, and how much of it was lost to failures: a sink of its events.

steps    1 2 3 4 5 6 7 †          4 5 6 7 8 9
time     ├─────────────┤────────────────┤──────►      lost: from the last step before a failure until it is done again
                        again: 4 steps
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from paceline.events.head_events import GenerationBegan, GenerationEnded, JobAccount, JobEnded, Recovered
from paceline.events.worker_events import BatchDone, Event, StepDone, TrainingResumed
from paceline.launcher.generations.account import Account


@dataclass(frozen=True, slots=True)
class _Failure:
    """A generation that ended before its time."""

    reason: str
    step: int
    """The last step that was told of."""
    at: float


class Ledger:
    """Keeps account of one job.

    >>> from paceline.events.head_events import Restarted
    >>> now, emitted = [0.0], []
    >>> ledger = Ledger(emitted.append, clock=lambda: now[0])
    >>> def hear(at, *events):
    ...     now[0] = at
    ...     for event in events:
    ...         ledger(event)
    >>> hear(0.0, GenerationBegan(1, num_workers=2))
    >>> hear(5.0, StepDone(0, step=10, epoch=0))
    >>> hear(5.5, GenerationEnded(1, 10, 137, "rank 1 was killed", has_failed=True), Restarted(2, 0.0))
    >>> hear(7.0, GenerationBegan(2, num_workers=2), TrainingResumed(0, 8, 0, 2, "s"))
    >>> emitted == [Recovered(2, 8, 2, 1.5, "rank 1 was killed at step 10")]
    True
    >>> hear(8.0, StepDone(0, step=9, epoch=0))
    >>> hear(10.0, StepDone(0, step=11, epoch=0))
    >>> now[0] = 20.0
    >>> ledger.job_ended(exit_code=0)
    >>> account, end = emitted[1:]
    >>> account.parts, account.deaths[0].seconds
    ({'start': 5.0, 'steps': 11.0}, {'detection': 0.5, 'restart': 1.5, 'tracing': 1.0, 'steps again': 1.0})
    >>> end.num_steps, end.num_restarts, end.num_repeated_steps, end.lost_seconds, end.goodput
    (11, 1, 2, 4.0, 0.8)

    Args:
        emit: Is given the events that follow from others.
        clock: Seconds.
    """

    def __init__(self, emit: Callable[[Event], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._began_at = clock()
        self._account = Account(self._began_at)
        self._lock = threading.Lock()  # the thread that answers `paceline status` asks for the account
        self._num_workers = 0
        self._num_restarts = 0
        self._begun_after = 0
        """The step of an earlier run's snapshot that this run has gone on from."""
        self._first: tuple[int, float] | None = None
        """The first step that was told of, and when: what came before is start and tracing."""
        self._best_at = 0.0
        """When the job came as far as it has come."""
        self._failure: _Failure | None = None

    def __call__(self, event: Event) -> None:
        """Takes the event into account."""
        now, best = self._clock(), self._account.best_step
        with self._lock:
            self._account.hear(event, now)
        if self._account.best_step > best:
            self._best_at = now
        match event:
            case GenerationBegan():
                self._num_workers, self._num_restarts = event.num_workers, event.generation - 1
            case StepDone() | BatchDone() if event.rank < self._num_workers:  # others' steps are none of the job
                self._first = self._first or (event.step, now)
            case GenerationEnded(reason=reason) if reason:
                reason += "" if event.step is None else f" at step {event.step}"
                self._failure = _Failure(reason, best, now)
            case TrainingResumed(rank=0):
                self._resumed(event, now)

    def _resumed(self, resumed: TrainingResumed, now: float) -> None:
        failure, self._failure = self._failure, None
        if failure is None:  # a new run of a job that had ended: its workers say so
            self._begun_after = self._account.best_step
            return
        lost = max(0, failure.step - resumed.step)
        self._emit(Recovered(resumed.generation, resumed.step, lost, now - failure.at, failure.reason))

    def account(self) -> JobAccount:
        """Where the time of the job has gone so far; may be called in any thread."""
        with self._lock:
            return self._account.told(self._clock())

    def job_ended(self, exit_code: int) -> None:
        """Tells what the job has done, where its time went, and what its restarts have cost."""
        account, best = self.account(), self._account.best_step
        seconds = max(account.seconds, 1e-9)
        lost = sum(sum(death.seconds.values()) for death in account.deaths)
        rate = None
        if self._first is not None and best > self._first[0] and self._best_at > self._first[1]:
            rate = (best - self._first[0]) / (self._best_at - self._first[1])
        self._emit(account)
        self._emit(
            JobEnded(
                exit_code,
                seconds=seconds,
                num_steps=0 if self._first is None else best - self._begun_after,
                steps_per_second=rate,
                num_restarts=self._num_restarts,
                num_repeated_steps=sum(death.num_steps for death in account.deaths),
                lost_seconds=lost,
                goodput=1 - lost / seconds,
                start_seconds=None if self._first is None else self._first[1] - self._began_at,
            )
        )
