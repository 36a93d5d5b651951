"""The clocks of hosts beside the launcher's; pure.

Clocks run at rates that differ by some millionths, so the offset between two measurements lies on the line between
them; before the first and behind the last one it may drift away. A host that was busy is measured badly for a while.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

MAX_DRIFT = 100e-6
"""By which part a clock may run at another rate."""


class Sample(NamedTuple):
    """A measurement, in nanoseconds."""

    at: int
    """The launcher's clock."""
    offset: int
    """How far the host's is ahead."""
    error: int | None
    """By how much that may be wrong; None: nobody knows."""


def worthwhile(samples: Sequence[Sample]) -> list[Sample]:
    """Those that say more than what a better one says of their time.

    >>> second = 10**9
    >>> [sample.error for sample in worthwhile([Sample(0, 5, 4_000_000), Sample(4 * second, 5, 300_000)])]
    [300000]
    """

    def is_worse(one: Sample, other: Sample) -> bool:
        if one.error is None or other.error is None:
            return False
        return other.error + MAX_DRIFT * abs(one.at - other.at) < one.error

    return [one for one in samples if not any(is_worse(one, other) for other in samples)]


class HostClock:
    """The clock of one host.

    Args:
        samples: Measurements of it, at least one.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = sorted(worthwhile(samples))
        self._there = [sample.at + sample.offset for sample in self._samples]

    def here(self, there: int) -> int:
        """The launcher's time, when it is `there` at the host."""
        if len(self._samples) == 1:
            return there - self._samples[0].offset
        after = min(max(bisect_right(self._there, there), 1), len(self._there) - 1)
        first, second = self._samples[after - 1], self._samples[after]
        share = (there - self._there[after - 1]) / max(self._there[after] - self._there[after - 1], 1)
        return there - first.offset - round((second.offset - first.offset) * min(max(share, 0.0), 1.0))

    def error_ns(self, first: int, last: int) -> int | None:
        """By how much `here` may be wrong, from the host's time `first` to `last`; None: nobody knows."""
        errors = [sample.error for sample in self._samples if sample.error is not None]
        if not errors:
            return None
        if not any(errors):  # the launcher's own
            return 0
        beyond = max(self._there[0] - first, last - self._there[-1], 0)
        return max(errors) + round(MAX_DRIFT * beyond)
