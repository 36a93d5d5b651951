"""Where the time of steps went, and which rank the others waited for; pure.

Ranks go on together from a message. The one that is busy longest until the next message comes last to it, and the
others wait for the time by which they were busy less.

    rank 0   compute ████████████ message ░░▓▓
    rank 1   compute ██████████████ message ▓▓        came last: ▓ is the message, ░ is waiting for rank 1

How long ranks stay in a message says less: over TCP they leave it one after the other, and a rank whose core is used by
others, too, stays long in a message to which it came last. It only limits how long they can have waited.

The stages of a pipeline begin no step together and have messages of their own: those are not divided.

A rank that comes late to the first message of a step has been busy with something else before: its input, a callback.
What the others wait is booked by that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paceline.comm.group import Array
from paceline.comm.process_facts import Facts
from paceline.comm.step_clock import NUM_NUMBERS, NUM_STEPS, Phase

Seconds = npt.NDArray[np.float64]

_BEFORE_AGREEMENT = (Phase.UPDATE, Phase.CALLBACKS, Phase.SNAPSHOT, Phase.REST)
"""For what a rank may come late to an agreement of callbacks, which follows the step."""
_BEFORE_COUNT = (Phase.INPUT, *_BEFORE_AGREEMENT)
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
    """(ranks, phases): messages without waiting. A wait for somebody's input is `INPUT`."""
    own: Seconds = field(init=False)
    """(ranks, phases): as each rank's clock has them, with waiting."""
    waited: Seconds = field(init=False)
    """Waiting, but for input."""
    blamed: Seconds = field(init=False)
    """(ranks, phases): how long all others together have waited for this rank while it was in a phase."""
    num_last: npt.NDArray[np.int64] = field(init=False)
    """(ranks, phases): in how many messages this rank came last, because of a phase."""
    facts: Seconds = field(init=False)
    """(ranks, `Facts`)."""

    def __post_init__(self) -> None:
        self.phases = np.zeros((self.num_ranks, len(Phase)))
        self.own = np.zeros((self.num_ranks, len(Phase)))
        self.waited = np.zeros(self.num_ranks)
        self.blamed = np.zeros((self.num_ranks, len(Phase)))
        self.num_last = np.zeros((self.num_ranks, len(Phase)), np.int64)
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
    """Adds up what ranks tell of their steps, in the order of the steps. Of many ranks each tells of several at once.

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
    totals = Totals(num_ranks)
    if not told:
        return totals
    first = np.zeros_like(told[0]) if before is None else before
    numbers: Seconds = np.stack([first, *told]).astype(np.float64) / 1e9
    phases, facts = numbers[1:, :, :NUM_STEPS], numbers[1:, :, NUM_STEPS + 1 :]
    earlier = numbers[:-1, :, :NUM_STEPS]  # what ranks did before they met in the first message of each step
    totals.num_steps = round(np.stack(told)[:, :, NUM_STEPS].mean(1).sum())
    totals.phases += phases.sum(0)
    totals.own += phases.sum(0)
    totals.facts += facts.sum(0)
    if num_ranks == 1:
        return totals
    meets = phases[:, :, Phase.COUNT].any()
    for message, late, causes in (
        (Phase.COUNT, _since_agreement(earlier), _BEFORE_COUNT),
        (Phase.MESSAGES, phases, (Phase.COMPUTE,)),
        (Phase.AGREEMENT, phases, _BEFORE_AGREEMENT),
    ):
        if meets or message is Phase.AGREEMENT:
            _book_waiting(totals, message, phases[:, :, message], late[:, :, causes], np.array(causes))
    return totals


def _since_agreement(phases: Seconds) -> Seconds:
    """What makes ranks come late to the first message of a step: where they have agreed, they begin together there."""
    have_agreed = phases[:, :, Phase.AGREEMENT].min(1) > 0
    since = phases.copy()
    for phase in (Phase.UPDATE, Phase.CALLBACKS, Phase.SNAPSHOT):
        since[have_agreed, :, phase] = 0
    return since


def _book_waiting(totals: Totals, message: Phase, stays: Seconds, late: Seconds, causes: npt.NDArray[np.int64]) -> None:
    """Takes waiting out of a kind of message, and says whom it was for.

    Args:
        totals: Of the steps.
        message: The kind.
        stays: (steps, ranks): how long each rank was in it.
        late: (steps, ranks, causes): what each rank had done since all went on together.
        causes: The phases that these are.
    """
    busy = late.sum(2)
    steps, last = np.arange(len(stays)), busy.argmax(1)
    # The shortest stay is taken for the message itself; there are steps without one.
    transfer = stays[stays.any(1)].min(initial=stays.max())
    waits = np.minimum(busy[steps, last][:, None] - busy, (stays - transfer).clip(min=0))
    cause = causes[(late[steps, last][:, None] - late).argmax(2)]
    is_input = cause == Phase.INPUT
    totals.phases[:, message] -= waits.sum(0)
    totals.phases[:, Phase.INPUT] += np.where(is_input, waits, 0).sum(0)
    totals.waited += np.where(is_input, 0, waits).sum(0)
    np.add.at(totals.blamed, (np.broadcast_to(last[:, None], stays.shape), cause), waits)
    longest = waits.argmax(1)
    np.add.at(totals.num_last, (last, cause[steps, longest]), waits[steps, longest] > 0)
