"""What ranks want of each other at the end of a step, told without a message of its own.

Each step begins with a message that counts the rows of all ranks (`strategy/replica_context.py`). A second number in it
carries these wishes, so all ranks hear the same ones in the same step, and act at its end.

    rank 0   (rows 32, no wish)      ─┐
    rank 1   (rows 32, preempted)    ─┴► (64, one is preempted) on both: a snapshot after this step, then they leave
"""

_PREEMPTED = 1
_SNAPSHOT = 1 << 20
"""Counts of up to a million ranks lie beside each other in one number."""


class Wishes:
    """What this rank wants, and what it has heard that some rank wants."""

    def __init__(self) -> None:
        self.wants_to_leave = False
        self.wants_snapshot = False
        self._heard = 0

    @property
    def own(self) -> int:
        """What this rank wants, as a number whose sum over ranks can be heard."""
        return _PREEMPTED * self.wants_to_leave + _SNAPSHOT * self.wants_snapshot

    def hear(self, total: int) -> None:
        """Some message brought the sum of the ranks' wishes."""
        self._heard |= int(total)

    @property
    def is_leaving(self) -> bool:
        """Whether some rank wants to leave, as all ranks know."""
        return self._heard % _SNAPSHOT > 0

    def take_snapshot(self) -> bool:
        """Whether some rank wants a snapshot, as all ranks know; asked once for each wish."""
        is_wanted = self._heard >= _SNAPSHOT
        self._heard %= _SNAPSHOT
        if is_wanted:
            self.wants_snapshot = False
        return is_wanted
