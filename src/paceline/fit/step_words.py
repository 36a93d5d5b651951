"""What the chief says of the time of steps; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.comm.process_facts import Facts
from paceline.comm.step_account import APART, Totals
from paceline.comm.step_clock import Phase
from paceline.events.worker_events import TRACING, VALIDATION

_SHOWN = {
    "input": (Phase.INPUT,),
    "input and compute": (Phase.WHOLE,),
    "compute": (Phase.COMPUTE,),
    "update": (Phase.UPDATE,),
    "waiting for others": (Phase.OTHERS,),
    "messages": (Phase.COUNT, Phase.MESSAGES, Phase.AGREEMENT),
    "callbacks": (Phase.CALLBACKS,),
    "snapshots": (Phase.SNAPSHOT,),
    "between steps": (Phase.REST,),
}
"""The phases of a step by the word for them."""

WAITING = "waiting"
_NOTHING = 0.005
"""Less of a step is not told."""

_MOSTLY = 0.6
"""Of the waiting, or of the messages: so much is because of one rank."""
_MUCH = 0.05
"""Of a step: waiting that is worth a word."""
_SLOWER = 1.25
"""A rank that computes so many times as long as the median is slow."""


@dataclass(frozen=True)
class Straggler:
    """A rank that the others wait for."""

    rank: int
    phase: Phase
    """What it does longer than they."""
    ratio: float
    """How many times as long as the median of the others."""
    share: float
    """Of a step, for which the others wait for it, on average."""
    reason: str
    """What the kernel says of it; empty: nothing."""

    @property
    def is_busy(self) -> bool:
        """Whether the kernel can say why: what is slow otherwise is the script's, or a disk."""
        return self.phase in (Phase.COMPUTE, Phase.UPDATE)


def straggler_in(totals: Totals) -> Straggler | None:
    """The rank that the others wait for in these steps, if there is one."""
    if totals.num_ranks == 1 or totals.seconds <= 0:
        return None
    rank, phase = (int(index) for index in np.unravel_index(totals.blamed.argmax(), totals.blamed.shape))
    share = float(totals.blamed[rank, phase]) / (totals.num_ranks - 1) / totals.seconds
    facts = Facts(*totals.facts[rank])
    # A quota stops a process once in a tenth of a second: of short steps only some are hit.
    is_often_last = totals.num_last[rank, phase] >= _MOSTLY * totals.num_steps or is_throttled(facts)
    others = np.delete(totals.own[:, phase], rank)
    ratio = float(totals.own[rank, phase]) / max(float(np.median(others)), 1e-9)
    if share < _MUCH or not is_often_last or ratio < _SLOWER:
        return None
    slow = Straggler(rank, Phase(phase), ratio, share, "")
    return replace(slow, reason=reason_for(facts)) if slow.is_busy else slow


def is_throttled(facts: Facts) -> bool:
    """Whether a quota stands in a process's way.

    >>> is_throttled(Facts(wall=100, throttled=5)), is_throttled(Facts())
    (True, False)
    """
    return facts.throttled > 0 and facts.throttled >= 0.05 * facts.wall


def reason_for(facts: Facts) -> str:
    """Why a process is slow, as far as the kernel says it; empty: it does not.

    >>> reason_for(Facts(wall=100, cpu=50, throttled=48))
    'its control group is throttled 48 % of the time'
    >>> reason_for(Facts(wall=10, cpu=6, queued=4))
    'its threads wait for cores that others use, 40 % of the time in which they could compute'
    >>> reason_for(Facts(wall=10, cpu=9))
    'it computes all the time: its core is slower, or its rows are more work'
    >>> reason_for(Facts(wall=10, cpu=3))
    'it stands still 70 % of the time: stopped, or waiting for something that the kernel does not count'
    """
    if not facts.wall:
        return ""
    throttled, memory = (min(each / facts.wall, 1.0) for each in (facts.throttled, facts.memory))
    queued = facts.queued / max(facts.queued + facts.cpu, 1)
    if is_throttled(facts):
        return f"its control group is throttled {_percent(throttled)} of the time"
    if memory >= 0.1:
        return f"its control group waits {_percent(memory)} of the time for memory"
    if queued >= 0.2:
        share = _percent(queued)
        return f"its threads wait for cores that others use, {share} of the time in which they could compute"
    still = 1 - facts.cpu / facts.wall
    if still >= 0.4:
        told = "stopped, or waiting for something that the kernel does not count"
        return f"it stands still {_percent(still)} of the time: {told}"
    return "it computes all the time: its core is slower, or its rows are more work"


def line_of_straggler(slow: Straggler, host: str = "") -> str:
    """What the user is told of a slow rank, and of its host, if there are several."""
    does = {
        Phase.INPUT: "waits for its data",
        Phase.CALLBACKS: "is in callbacks",
        Phase.SNAPSHOT: "takes snapshots",
        Phase.UPDATE: "updates weights",
        Phase.REST: "is between steps",
    }.get(slow.phase, "computes")
    times = f"{slow.ratio:.1f} times as long as" if slow.ratio < 100 else "much longer than"
    reason = f" ({slow.reason})" if slow.reason else ""
    where = f" ({host})" if host else ""
    return (
        f"rank {slow.rank}{where} {does} {times} the median of the others{reason}: they wait for it for "
        f"{_percent(slow.share)} of each step [straggler]"
    )


def line_of_epoch(totals: Totals) -> str:
    """Where the time of a step goes, in one line; empty: there was no step."""
    if totals.num_steps == 0 or not totals.seconds:
        return ""
    return f"step {_milliseconds(totals.seconds / totals.num_steps)}: {shares_of(totals)}"


def line_of_fit(totals: Totals, seconds: float, untold: Sequence[float]) -> str:
    """Where the time of a whole `fit` went.

    Args:
        totals: Of all its steps that ranks have told of; the chief is the first rank.
        seconds: Of the whole call.
        untold: Seconds in each phase that the chief's clock has counted and not told.
    """
    start, validation = (float(totals.own[0, phase]) + untold[phase] for phase in APART)
    steps = totals.seconds + sum(untold[phase] for phase in Phase if phase not in APART)
    pieces = [f"steps {steps:.1f} s"] if totals.num_steps else []
    others = {"start": start, "validation": validation, "the rest": seconds - steps - start - validation}
    pieces += [f"{word} {part:.1f} s" for word, part in others.items() if part >= 0.05]
    per_step = line_of_epoch(totals)
    return f"fit {seconds:.1f} s: {', '.join(pieces)}" + (f"; {per_step}" if per_step else "")


def spent_by_word(totals: Totals, untold: Sequence[float]) -> dict[str, float]:
    """Seconds of the chief, the first rank, since its `fit` began.

    Args:
        totals: Of all steps that ranks have told of.
        untold: Seconds in each phase that the chief's clock has counted and not told. Of messages it is not known yet
            how much is waiting: they are left out.
    """
    known = totals.phases[0] + np.array(untold)
    for phase in _SHOWN["messages"]:
        known[phase] = totals.phases[0, phase]
    phases = {**_SHOWN, TRACING: (Phase.START,), VALIDATION: (Phase.VALIDATION,)}
    by_word = {word: float(known[[*some]].sum()) for word, some in phases.items()}
    by_word[WAITING] = float(totals.waited[0])
    return {word: round(seconds, 6) for word, seconds in by_word.items() if seconds > 0}


@dataclass(frozen=True)
class Shares:
    """What a step is spent with.

    The shares are those of the ranks that wait, if they wait for one rank in particular; else of all.
    """

    by_word: dict[str, float]
    """From 0 to 1, in the order in which they are told; what is next to nothing is left out."""
    waits_for: int | None
    """The rank that the others wait for; None: for each other, or for nobody."""

    def __str__(self) -> str:
        whom = "each other" if self.waits_for is None else f"rank {self.waits_for}"
        told = {word: f"waiting for {whom}" if word == WAITING else word for word in self.by_word}
        return ", ".join(f"{told[word]} {_percent(share)}" for word, share in self.by_word.items())


def shares_of(totals: Totals) -> Shares:
    """Those of these steps, of which there must be one."""
    by_rank = totals.blamed.sum(1)
    slowest = int(by_rank.argmax())
    is_one = totals.num_ranks > 1 and by_rank[slowest] >= _MOSTLY * max(by_rank.sum(), 1e-9)
    ranks = [rank for rank in range(totals.num_ranks) if not (is_one and rank == slowest)]
    whole = totals.seconds
    shares = {word: float(totals.phases[ranks][:, phases].sum(1).mean()) / whole for word, phases in _SHOWN.items()}
    shares[WAITING] = float(totals.waited[ranks].mean()) / whole
    order = [*_SHOWN]
    order.insert(order.index("messages"), WAITING)
    by_word = {word: shares[word] for word in order if shares[word] >= _NOTHING}
    return Shares(by_word, slowest if is_one and WAITING in by_word else None)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"
