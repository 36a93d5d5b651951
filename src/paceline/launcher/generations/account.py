"""Where the time of a job went: one partition of its wall clock by marks, so the parts add up to it. Pure.

    launcher    first `fit`           last step   noticed    ended     `fit`       resumed   first step   where it was
    ├─ start ───┼─ tracing ─┼─ steps ─┼ detection ┼ stopping ┼ restart ┼ restoring ┼ tracing ─┼─ again ────┼─ steps ──…
                                    └──────────────────────────── a death ────────────────────────────────┘

Marks are events of the head, and of the chief: all ranks make the same steps. What a mark does not tell apart, such as
waiting and computing, the chief tells as sums (`TimeSpent`). They divide the time since it told of them before; so a
message that is lost costs nothing, and what a killed chief could not tell any more stays in one piece.
"""

import copy
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.events.head_events import (
    Death,
    GenerationBegan,
    GenerationEnded,
    HostLost,
    JobAccount,
    PreemptionBegan,
    RankEnded,
    Restarted,
    StopBegan,
)
from paceline.events.worker_events import (
    TRACING,
    VALIDATION,
    BatchDone,
    EpochBegan,
    EpochEnded,
    Event,
    FitBegan,
    FitEnded,
    OfRank,
    Preempted,
    SnapshotTaken,
    StepDone,
    TimeSpent,
    TraceBegan,
    TrainingResumed,
)

CHIEF = 0

START, STEPS, CALLBACKS, SNAPSHOTS, SCRIPT, END = "start", "steps", "callbacks", "snapshots", "script", "end"
DETECTION, STOPPING, RESTART, RESTORING, AGAIN = "detection", "stopping", "restart", "restoring", "steps again"

_IN_STEPS = (STEPS, VALIDATION, CALLBACKS)
"""The chief tells of each step and batch: what follows the last one is lost with it."""
_DIVIDED = (*_IN_STEPS, TRACING)
"""Parts that the chief tells more of."""
_OF_DEATH = (DETECTION, STOPPING, RESTART, RESTORING)


@dataclass(slots=True)
class _Death:
    step: int
    """Where the job had been."""
    was_in: str
    """The part of the job in which it came."""
    reason: str = ""
    num_steps: int = 0
    """How many steps have been done again."""
    has_resumed: bool = False
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))


class Account:
    """That of one job.

    >>> account = Account(now=0.0)
    >>> for now, event in (
    ...     (0.5, GenerationBegan(1, num_workers=2)),
    ...     (3.0, FitBegan(0, 0, 0, False)),
    ...     (5.0, StepDone(0, 1, 0)),
    ...     (9.0, StepDone(0, 5, 0)),
    ...     (9.5, FitEnded(0, 5)),
    ... ):
    ...     account.hear(event, now)
    >>> account.told(10.0).parts
    {'start': 3.0, 'tracing': 2.0, 'steps': 4.5, 'script': 0.5}

    Args:
        now: When the job began; seconds, as all times.
    """

    def __init__(self, now: float) -> None:
        self._began_at = self._since = now
        self._state = START
        """The part of the time from the last mark on, as far as nobody says otherwise."""
        self._parts: dict[str, float] = defaultdict(float)
        self._undivided: dict[str, float] = defaultdict(float)
        """Of this `fit`, since the chief told of its sums."""
        self._sums: Mapping[str, float] = {}
        """What the chief told last in this `fit`."""
        self._deaths: list[_Death] = []
        self._open: _Death | None = None
        """The death whose cost still grows: the job is not back where it had been."""
        self._num_workers = 0
        self._is_leaving = self._is_stopping = False
        self._step = 0
        """Where the chief is."""
        self.best_step = 0
        """How far any rank has come."""

    def hear(self, event: Event, now: float) -> None:
        """Something has happened."""
        match event:
            case StepDone(rank=rank) | BatchDone(rank=rank) if rank < self._num_workers:
                self._hear_step(event, now)
            case RankEnded(rank=rank, exit_code=code) if code:
                if rank < self._num_workers:
                    self._notice(now)
            case OfRank(rank=rank):
                if rank == CHIEF and not self._is_stopping and self._state != END:
                    self._hear_chief(event, now)
            case _:
                self._hear_head(event, now)

    def _hear_head(self, event: Event, now: float) -> None:
        match event:
            case HostLost(ranks=ranks) if any(rank < self._num_workers for rank in ranks):
                self._notice(now)
            case StopBegan() if self._is_leaving:  # it takes too long
                self._go(END, now)
            case StopBegan():
                self._notice(now)
            case PreemptionBegan():
                self._is_leaving = True
            case GenerationBegan():
                self._num_workers = event.num_workers
                self._is_leaving = self._is_stopping = False
            case GenerationEnded():
                self._generation_ended(event, now)
            case Restarted() if self._open is not None:
                self._go(RESTART, now, spent_on=RESTART)

    def _hear_step(self, event: StepDone | BatchDone, now: float) -> None:
        best, self.best_step = self.best_step, max(self.best_step, event.step)
        if self._is_stopping:
            if self._open is not None and self._open.step == best:  # told before the death was, heard of after it
                self._open.step = self.best_step
        elif event.rank == CHIEF and self._state != END:
            self._stepped(event, now)

    def _hear_chief(self, event: OfRank, now: float) -> None:
        match event:
            case RankEnded():
                self._go(END, now)
            case Preempted():
                self._is_leaving = True
                self._go(END, now)
            case FitBegan():
                is_restored = event.is_repeated or (self._open is not None and not self._open.has_resumed)
                self._go(RESTORING if is_restored else TRACING, now)
                self._sums = {}
            case TrainingResumed(step=step):
                is_new_run = self._state == TRACING and event.snapshot != ""
                self._go(TRACING, now, spent_on=RESTORING if is_new_run else None)
                self._step = step
                self.best_step = max(self.best_step, step)
                if self._open is not None:
                    self._open.has_resumed = True
            case EpochBegan() if self._state == RESTORING:
                self._go(TRACING, now)
            case TraceBegan() if self._state in _IN_STEPS:
                self._go(TRACING, now)
            case EpochEnded():
                self._go(STEPS, now)
            case TimeSpent(seconds=sums):
                self._divide(sums, now)
            case FitEnded():
                self._go(SCRIPT, now)
                self._keep_undivided()
            case SnapshotTaken() if self._state == SCRIPT:  # `fit` waits for its last ones
                self._go(SCRIPT, now, spent_on=SNAPSHOTS)

    def _stepped(self, event: StepDone | BatchDone, now: float) -> None:
        if isinstance(event, BatchDone):
            what = VALIDATION if event.is_validation else CALLBACKS
            self._go(what, now, spent_on=what)
            return
        if (death := self._open) is not None and not death.has_resumed:  # a loop of the script's own
            death.has_resumed, self._step = True, event.step - event.num_steps
        before, self._step = self._step, event.step
        if death is not None:
            again = max(min(event.step, death.step) - before, 0)
            death.num_steps += again
            if event.step >= death.step:
                num_steps = max(event.step - before, 1)
                back_at = now if self._state == TRACING else self._since + (now - self._since) * again / num_steps
                self._advance(back_at, self._state)
                self._open, self._state = None, STEPS
        self._go(STEPS, now)

    def _notice(self, now: float) -> None:
        """A death is noticed, or a stop that may be one; what follows is its consequence."""
        if self._is_stopping or self._is_leaving:
            return
        was_in, self._is_stopping = self._state, True
        if was_in not in _IN_STEPS:
            self._advance(now, was_in)
        self._keep_undivided()
        self._open = _Death(self.best_step, was_in)
        self._deaths.append(self._open)
        self._go(STOPPING, now, spent_on=DETECTION)

    def _generation_ended(self, event: GenerationEnded, now: float) -> None:
        if event.has_failed:
            self._notice(now)
        elif self._is_stopping and self._open is not None:  # somebody stopped the job: nothing has died
            stop, self._open = self._deaths.pop(), None
            for part, seconds in stop.parts.items():
                self._parts[stop.was_in if part == DETECTION else END] += seconds
            self._state = END
        if self._is_stopping and self._open is not None:
            self._open.reason = event.reason
        self._go(END, now)
        self._keep_undivided()

    def _go(self, state: str, now: float, *, spent_on: str | None = None) -> None:
        """A mark: from now on the job is in `state`; since the mark before it was in `spent_on`, else as noted then."""
        self._advance(now, self._state if spent_on is None else spent_on)
        self._state = state

    def _advance(self, now: float, part: str) -> None:
        seconds, self._since = now - self._since, now
        if self._open is None or part == END:
            (self._undivided if part in _DIVIDED else self._parts)[part] += seconds
        else:
            self._open.parts[part if part in (*_OF_DEATH, TRACING) else AGAIN] += seconds

    def _divide(self, sums: Mapping[str, float], now: float) -> None:
        """Divides the time since the chief told of its sums before as they have grown."""
        before, self._sums = self._sums, sums
        self._advance(now, self._state)
        grown = {part: max(seconds - before.get(part, 0.0), 0.0) for part, seconds in sums.items()}
        whole = sum(grown.values())
        if self._open is not None or whole <= 0:
            return
        undivided = sum(self._undivided.values())
        self._undivided.clear()
        for part, seconds in grown.items():
            self._parts[part] += undivided * seconds / whole

    def _keep_undivided(self) -> None:
        """No more will be told of it."""
        for part, seconds in self._undivided.items():
            self._parts[part] += seconds
        self._undivided.clear()

    def told(self, now: float) -> JobAccount:
        """The account up to now, as if the job ended."""
        ended = copy.deepcopy(self)
        ended._advance(now, ended._state)
        ended._keep_undivided()
        deaths = (Death(one.reason, one.step, one.num_steps, _spent(one.parts)) for one in ended._deaths)
        return JobAccount(now - self._began_at, _spent(ended._parts), tuple(deaths))


def _spent(parts: Mapping[str, float]) -> dict[str, float]:
    return {part: seconds for part, seconds in parts.items() if seconds > 0}


_ALONE = (START, TRACING, VALIDATION, RESTORING, SCRIPT, END)
_NOTHING = 0.015
"""A smaller share of a job is a part of the rest."""


def account_text(account: JobAccount) -> str:
    """Where the time of a job went that has gone on after a death; of others the user reads nothing.

    >>> death = Death("rank 1 was killed", 50, 4, {DETECTION: 0.5, RESTART: 6.0, AGAIN: 1.5})
    >>> account_text(JobAccount(40.0, {START: 6.0, "compute": 20.0, "messages": 5.6, SCRIPT: 0.4}, (death,)))
    '40.0 s: start 15 %, steps 64 %, a death 20 % (detection 0.5 s, restart 6.0 s, 4 steps again 1.5 s), the rest 1 %'
    """
    if not any(RESTART in death.seconds for death in account.deaths) or account.seconds <= 0:
        return ""
    of_steps = sum(seconds for part, seconds in account.parts.items() if part not in _ALONE)
    whole = {START: account.parts.get(START, 0.0), TRACING: account.parts.get(TRACING, 0.0), STEPS: of_steps}
    whole |= {part: account.parts.get(part, 0.0) for part in _ALONE if part not in whole}
    shares = {part: seconds / account.seconds for part, seconds in whole.items()}
    told = [f"{part} {_percent(share)}" for part, share in shares.items() if share >= _NOTHING]
    rest = sum(share for share in shares.values() if share < _NOTHING)
    told += [_deaths_text(account), *([f"the rest {_percent(rest)}"] if rest >= 0.005 else [])]
    return f"{account.seconds:.1f} s: {', '.join(told)}"


def _deaths_text(account: JobAccount) -> str:
    """All deaths together: each has had its line."""
    sums: dict[str, float] = defaultdict(float)
    for death in account.deaths:
        for part, seconds in death.seconds.items():
            sums[part] += seconds
    num_steps = sum(death.num_steps for death in account.deaths)
    steps = f"{num_steps} step{'' if num_steps == 1 else 's'} again"
    order = (*_OF_DEATH, TRACING, AGAIN)
    parts = [f"{steps if part == AGAIN else part} {sums[part]:.1f} s" for part in order if sums[part] >= 0.05]
    who = "a death" if len(account.deaths) == 1 else f"{len(account.deaths)} deaths"
    return f"{who} {_percent(sum(sums.values()) / account.seconds)} ({', '.join(parts)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
