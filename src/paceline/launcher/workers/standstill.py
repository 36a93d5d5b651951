"""Workers that the kernel holds stopped before they have made a step, when no progress can tell that they hang. Pure.

A worker that trains is missed by its steps (``generation.py``). One that is loading data or tracing its first step
may take as long as it likes, unless it does not run at all: SIGSTOP, or a debugger.
"""

from collections.abc import Collection


class Standstill:
    """Remembers since when workers are stopped.

    >>> standstill = Standstill(limit_seconds=5)
    >>> standstill.overdue({1}, now=10.0), standstill.overdue({1}, now=15.0), standstill.overdue({1}, now=16.0)
    ((), (1,), ())

    Args:
        limit_seconds: How long a worker may be stopped.
    """

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._since: dict[int, float] = {}
        self._told: set[int] = set()

    def overdue(self, stopped: Collection[int], now: float) -> tuple[int, ...]:
        """The ranks out of `stopped` that are so for too long; each is told once for each time it was stopped."""
        self._since = {rank: self._since.get(rank, now) for rank in stopped}
        self._told &= self._since.keys()
        late = tuple(
            rank for rank, since in self._since.items() if now - since >= self._limit_seconds and rank not in self._told
        )
        self._told.update(late)
        return late
