"""Where the time of steps went, and which rank the others waited for; pure.

Ranks leave a message together, so the one that came last stays the shortest in it: that is what the message takes, and
what others stay longer they have waited.

    rank 0   compute ████████████ message ░░▓▓
    rank 1   compute ██████████████ message ▓▓        came last: ▓ is the message, ░ is waiting for rank 1

A rank that comes late to the first message of a step has been busy with something else before: its input, a callback.
What the others wait is booked by that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paceline.comm.group import Array
from paceline.comm.process_facts import Facts
from paceline.comm.step_clock import NUM_NUMBERS, Phase

Seconds = npt.NDArray[np.float64]

_BEFORE_COUNT = (Phase.INPUT, Phase.UPDATE, Phase.CALLBACKS, Phase.SNAPSHOT, Phase.REST)
"""For what a rank may come late to the first message of a step. For what it computes it comes late to a later one."""
APART = (Phase.START, Phase.VALIDATION)
"""No part of the time of steps."""
_SETTLED_AT_ONCE = 20
"""Adding up takes a quarter of a millisecond, whatever the number of steps."""


@dataclass
class Totals:
    """Sums over steps, in seconds; of each rank, unless it says otherwise."""

    num_ranks: int
    num_steps: int = 0
    phases: Seconds = field(init=False)
    """(ranks, phases): `COUNT` and `MESSAGES` without waiting. A wait for somebody's input is `INPUT`."""
    own: Seconds = field(init=False)
    """(ranks, phases): as each rank's clock has them, with waiting."""
    waited: Seconds = field(init=False)
    """Waiting, but for input."""
    blamed: Seconds = field(init=False)
    """(ranks, phases): how long all others together have waited for this rank while it was in a phase."""
    num_last: npt.NDArray[np.int64] = field(init=False)
    """In how many messages this rank came last."""
    facts: Seconds = field(init=False)
    """(ranks, `Facts`)."""

    def __post_init__(self) -> None:
        self.phases = np.zeros((self.num_ranks, len(Phase)))
        self.own = np.zeros((self.num_ranks, len(Phase)))
        self.waited = np.zeros(self.num_ranks)
        self.blamed = np.zeros((self.num_ranks, len(Phase)))
        self.num_last = np.zeros(self.num_ranks, np.int64)
        self.facts = np.zeros((self.num_ranks, len(Facts._fields)))

    def add(self, other: "Totals") -> None:
        """Other steps of the same ranks, too."""
        self.num_steps += other.num_steps
        self.phases += other.phases
        self.own += other.own
        self.waited += other.waited
        self.blamed += other.blamed
        self.num_last += other.num_last
        self.facts += other.facts

    @property
    def seconds(self) -> float:
        """Of all these steps on a rank."""
        apart = self.phases[:, [*APART]].sum(1)
        return float((self.phases.sum(1) + self.waited - apart).mean())


class StepAccount:
    """Adds up what ranks tell of their steps, in the order of the steps.

    Args:
        num_ranks: Of the group that takes them together.
    """

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self._coming = np.zeros((num_ranks, NUM_NUMBERS), np.int64)
        self._told: list[Array] = []
        self._before: Array | None = None

    def hear(self, first: int, told: Array) -> bool:
        """Takes what some ranks have told in a message: int64 (ranks, `NUM_NUMBERS`).

        Returns:
            Whether there are so many steps that `settled` is worth its time.
        """
        self._coming[first : first + len(told)] = told
        if first + len(told) == self.num_ranks:
            self._told.append(self._coming)
            self._coming = np.zeros_like(self._coming)
        return len(self._told) >= _SETTLED_AT_ONCE

    def settled(self) -> Totals:
        """The sums over the steps since the last time."""
        told, self._told = self._told, []
        before, self._before = self._before, told[-1] if told else self._before
        return totals_of(told, before, self.num_ranks)


def totals_of(told: Sequence[Array], before: Array | None, num_ranks: int) -> Totals:
    """The sums over some steps.

    Args:
        told: What all ranks told at the beginning of each step: int64 (ranks, `NUM_NUMBERS`).
        before: What they told at the beginning of the step before these; None: these begin with the first one, and what
            was told first is how they came to it.
        num_ranks: How many there are.
    """
    totals = Totals(num_ranks, num_steps=max(len(told) - (before is None), 0))
    if not told:
        return totals
    first = np.zeros_like(told[0]) if before is None else before
    numbers: Seconds = np.stack([first, *told]).astype(np.float64) / 1e9
    phases, facts = numbers[1:, :, : len(Phase)], numbers[1:, :, len(Phase) :]
    earlier = numbers[:-1, :, : len(Phase)]  # what ranks did before they met in the first message of each step
    steps = np.arange(len(told))
    kept = phases.copy()
    for message in (Phase.COUNT, Phase.MESSAGES):
        stays = phases[:, :, message]
        last = stays.argmin(1)
        waits = stays - stays[steps, last][:, None]
        kept[:, :, message] -= waits
        if message is Phase.COUNT:
            late = earlier[:, :, _BEFORE_COUNT]
            cause = np.array(_BEFORE_COUNT)[(late[steps, last][:, None] - late).argmax(2)]
        else:
            cause = np.full(stays.shape, Phase.COMPUTE)
        is_input = cause == Phase.INPUT
        kept[:, :, Phase.INPUT] += np.where(is_input, waits, 0)
        totals.waited += np.where(is_input, 0, waits).sum(0)
        np.add.at(totals.blamed, (np.broadcast_to(last[:, None], stays.shape), cause), waits)
        np.add.at(totals.num_last, last, 1)
    totals.phases += kept.sum(0)
    totals.own += phases.sum(0)
    totals.facts += facts.sum(0)
    return totals
