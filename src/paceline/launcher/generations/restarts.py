"""Decides whether a failed generation is followed by another one. Pure: no clock, no processes.

a generation ends ──► by itself, by a signal, by a wrong setting ────────────► the job ends with it
      │               the same exception at the same step as before ─────────► the job ends: a bug, not a fault
      │               no restart left within the window ─────────────────────► the job ends
      └─ else ──► another one, at once, or after a pause where the last one came no step further
"""

from dataclasses import dataclass

from paceline.errors import EXIT_CONFIGURATION, EXIT_PREEMPTED, EXIT_USAGE
from paceline.launcher.generations.decisions import (
    MAX_DEATHS,
    Cause,
    Interrupted,
    Outcome,
    Preemption,
    RoleFailed,
    WorkerFailed,
    WorkerLeft,
)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0

_FINAL_CODES = (EXIT_USAGE, EXIT_CONFIGURATION, EXIT_PREEMPTED)
"""What no restart can change, and a preemption, after which somebody else starts the job again."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Begin another generation after `pause_seconds`."""

    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The job is over; `reason` says why there is no restart although there could be one, and may be empty."""

    reason: str


Verdict = Restart | Finish


@dataclass(frozen=True, slots=True)
class _Death:
    exception: str | None
    """None: sudden, by a signal or with its host."""
    step: int | None


class RestartBudget:
    """How many restarts are left: of all ranks, and of single processes outside of the world, which count alike.

    >>> budget = RestartBudget(1)
    >>> budget.take(now=0.0), budget.take(now=1.0)
    (True, False)

    Args:
        max_restarts: How many there may be.
        window_seconds: Only those of the last so many seconds count; None: all.
    """

    def __init__(self, max_restarts: int, window_seconds: float | None = None) -> None:
        self._max_restarts = max_restarts
        self._window_seconds = window_seconds
        self._restarted_at: list[float] = []

    @property
    def is_none(self) -> bool:
        """Whether the user allows no restart at all."""
        return self._max_restarts == 0

    def has_one(self, now: float) -> bool:
        """Whether a restart is left."""
        return self._num_counted(now) < self._max_restarts

    def take(self, now: float) -> bool:
        """Uses up a restart; whether there was one."""
        has_one = self.has_one(now)
        if has_one:
            self._restarted_at.append(now)
        return has_one

    def used_up_text(self, now: float) -> str:
        """Why there is none left."""
        number = self._num_counted(now)
        made = "1 restart has" if number == 1 else f"{number} restarts have"
        within = "" if self._window_seconds is None else f" within {self._window_seconds:g} s"
        return f"{made} been made{within}, as many as --max-restarts allows"

    def _num_counted(self, now: float) -> int:
        window = self._window_seconds
        return sum(window is None or now - time < window for time in self._restarted_at)


class RestartPolicy:
    """Decides after each generation.

    >>> policy = RestartPolicy(RestartBudget(1))
    >>> from paceline.events.head_events import HostLost
    >>> policy.after(Outcome(HostLost((1,), "b", "is silent"), ()), step=7, now=0.0)
    Restart(pause_seconds=0.0)
    >>> policy.after(Outcome(HostLost((1,), "b", "is silent"), ()), step=9, now=1.0)
    Finish(reason='1 restart has been made, as many as --max-restarts allows')

    Args:
        budget: How many restarts are allowed.
    """

    def __init__(self, budget: RestartBudget) -> None:
        self._budget = budget
        self._last: _Death | None = None
        self._pause_seconds = 0.0

    def after(self, outcome: Outcome, step: int | None, now: float) -> Verdict:
        """What follows the generation that ended with `outcome` after `step` (None: before its first)."""
        if outcome.cause is None or self._budget.is_none or _is_final(outcome.cause, outcome.exit_code):
            return Finish("")
        death = _death_of(outcome.cause, step)
        stuck = self._last is not None and self._last.step == death.step
        if stuck and death.exception is not None and self._last == death:
            where = "before the first step" if step is None else f"at step {step}"
            return Finish(f"the same exception came twice {where}: a bug in the program, which a restart cannot fix")
        self._last = death
        if not self._budget.take(now):
            return Finish(self._budget.used_up_text(now))
        self._pause_seconds = _next_pause_seconds(self._pause_seconds) if stuck else 0.0
        return Restart(self._pause_seconds)


def _is_final(cause: Cause, exit_code: int) -> bool:
    if isinstance(cause, RoleFailed) and cause.num_deaths >= MAX_DEATHS:  # it has been started again often enough
        return True
    return isinstance(cause, Interrupted | WorkerLeft | Preemption) or exit_code in _FINAL_CODES


def _death_of(cause: Cause, step: int | None) -> _Death:
    if isinstance(cause, WorkerFailed) and cause.failed is not None:
        return _Death(cause.failed.exception, step)
    if isinstance(cause, RoleFailed) and cause.end.failed is not None:
        return _Death(cause.end.failed.exception, step)
    return _Death(None, step)


def _next_pause_seconds(pause_seconds: float) -> float:
    return min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * pause_seconds))
