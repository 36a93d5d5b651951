"""Which shares of the rows make all ranks compute equally long; pure.

    told with each step    how long each rank has computed, and of how many rows
    ten steps              the mean of each rank: so long it would compute of other numbers of rows, in proportion
    other ten steps        with the shares that are best for the ten steps before or behind them, steps would be shorter
                           by three hundredths: other shares, one for each row of a full batch

What a rank computes does not wholly depend on its rows. So the first new shares are not quite right, and the next ones,
which are chosen from them, are nearer. All ranks compute with the same integers, by operations that give the same bits
on every processor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.comm.group import Array
from paceline.comm.step_clock import NUM_STEPS, Phase

_WINDOW_STEPS = 10
"""So many at once are looked at."""
_GAIN = 0.03
"""Of a step: what other shares must be worth."""
_APART = (Phase.START, Phase.VALIDATION)


@dataclass
class _Window:
    """Some steps in which each rank has had the same rows; of each rank, nanoseconds and steps."""

    compute: list[int]
    whole: list[int]
    steps: list[int] = field(default_factory=list)

    def __add__(self, other: "_Window") -> "_Window":
        pairs = zip((self.compute, self.whole, self.steps), (other.compute, other.whole, other.steps), strict=True)
        return _Window(*([a + b for a, b in zip(one, another, strict=True)] for one, another in pairs))

    @property
    def is_full(self) -> bool:
        return min(self.steps) >= _WINDOW_STEPS

    def compute_of_step(self) -> list[float]:
        """How long each rank computes in a step."""
        return [nanoseconds / steps for nanoseconds, steps in zip(self.compute, self.steps, strict=True)]

    def gain(self, rows: Sequence[int], others: Sequence[int]) -> float:
        """By which part a step would be shorter with other rows."""
        seconds = self.compute_of_step()
        later = [time / max(1, own) * other for time, own, other in zip(seconds, rows, others, strict=True)]
        return (max(seconds) - max(later)) / max(1.0, max(self.whole) / max(1, max(self.steps)))


def equal_times(rows: Sequence[int], times: Sequence[float]) -> tuple[int, ...]:
    """The rows with which the slowest rank's time is as small as possible; at least one row each.

    >>> equal_times([32, 32], [1.0, 2.0])
    (43, 21)

    Args:
        rows: That each has; together at least one for each rank.
        times: How long each computes of them.
    """
    per_row = [max(time, 1.0) / max(1, own) for own, time in zip(rows, times, strict=True)]
    # So long all ranks would compute if rows could be divided: each has at least the rows that fit in.
    equal = sum(rows) / sum(1 / seconds for seconds in per_row)
    found = [max(1, int(equal / seconds)) for seconds in per_row]
    ranks = range(len(rows))
    for _ in range(sum(rows) - sum(found)):
        found[min(ranks, key=lambda rank: (found[rank] + 1) * per_row[rank])] += 1
    for _ in range(sum(found) - sum(rows)):  # the one row of very slow ranks is missing elsewhere
        found[max((rank for rank in ranks if found[rank] > 1), key=lambda rank: found[rank] * per_row[rank])] -= 1
    return tuple(found)


class ShareChoice:
    """Hears of each step, and says when the rows should be shared out otherwise.

    Args:
        num_ranks: That share the rows.
    """

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._rows: tuple[int, ...] = ()
        """Of each rank in full batches, since `_window` began."""
        self._latest: tuple[int, ...] = ()
        """In the step before."""
        self._window = self._new_window()
        self._before: _Window | None = None
        """The window before, with the same shares."""
        self._is_awaited = False
        """Whether shares have been chosen that no step has had yet."""

    def hear(self, first: int, told: Array, rows: Sequence[int]) -> tuple[int, ...] | None:
        """Takes what the first message of a step has brought.

        Args:
            first: The first of the ranks that tell something.
            told: What their clocks say of the steps before: int64 (ranks, `NUM_NUMBERS`).
            rows: Of each rank, in the step that begins.

        Returns:
            The new shares; None: they stay.
        """
        of_before, self._latest = self._latest, tuple(rows)
        if sum(of_before) >= sum(self._rows) and of_before != self._rows:  # full batches have others from now on
            self._rows, self._is_awaited = of_before, False
            self._window, self._before = self._new_window(), None
            if self._num_ranks > len(told):  # clocks are told in turn: of these steps, and of steps before
                return None
        if self._is_awaited or of_before != self._rows or sum(self._rows) < self._num_ranks:
            return None
        self._take(first, told)
        return self._chosen() if self._window.is_full else None

    def _take(self, first: int, told: Array) -> None:
        numbers = [[int(number) for number in one] for one in told]
        if any(one[Phase.START] for one in numbers):  # a step that was traced
            return
        for rank, one in enumerate(numbers, first):
            self._window.compute[rank] += one[Phase.COMPUTE]
            self._window.whole[rank] += sum(one[:NUM_STEPS]) - sum(one[phase] for phase in _APART)
            self._window.steps[rank] += one[NUM_STEPS]

    def _chosen(self) -> tuple[int, ...] | None:
        before, self._before, self._window = self._before, self._window, self._new_window()
        if before is None:
            return None
        # What noise suggests in some steps is worth nothing in others.
        if min(self._gain(self._before, before), self._gain(before, self._before)) < _GAIN:
            return None
        self._is_awaited = True
        return self._better(before + self._before)

    def _better(self, window: _Window) -> tuple[int, ...]:
        return equal_times(self._rows, window.compute_of_step())

    def _gain(self, window: _Window, chosen_by: _Window) -> float:
        """What the shares that some steps suggest would have been worth in others."""
        return window.gain(self._rows, self._better(chosen_by))

    def _new_window(self) -> _Window:
        return _Window(*([0] * self._num_ranks for _ in range(3)))
