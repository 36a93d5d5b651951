"""In place of what decides by the clock under ``--shares auto``: other shares every few steps, the same in each run."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

SHARES = {
    2: ((3, 1), (1, 1), (1, 4), (0, 1), (5, 2)),
    3: ((3, 1, 2), (0, 1, 1), (1, 1, 1), (1, 5, 0), (2, 3, 4)),
}


class Rotating:
    """See the module, and `ShareChoice`.

    Args:
        size: Number of ranks.
    """

    every = 5
    """So many steps have the same shares, but for what was read ahead."""

    def __init__(self, size: int) -> None:
        self._coming = cycle(SHARES[size])
        self._num_steps = 0

    def hear(self, first: int, told: Any, rows: Sequence[int]) -> tuple[int, ...] | None:
        assert first == 0
        assert len(told) == len(rows)
        self._num_steps += 1
        if self._num_steps % self.every:
            return None
        return next(self._coming)


def rotate(every: int = Rotating.every) -> None:
    """From the next `fit` on, in this process; on all ranks."""
    from paceline.fit.auto_shares import AutoShares

    Rotating.every = every
    AutoShares.choose = Rotating
