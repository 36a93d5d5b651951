"""Flags that ranks raise for the end of a step (leave, take a snapshot), without a message of their own.

Each step begins with a message that counts the rows of all ranks (`strategy/bridged_collectives.py`). Its first number
carries these flags, so all ranks receive the same ones in the same step, and act at its end.

    rank 0   (rows 32, no flag)      ─┐
    rank 1   (rows 32, preempted)    ─┴► (64, one is preempted) on both: a snapshot after this step, then they leave
"""

from typing import TYPE_CHECKING

from paceline.cluster.communication import Communication

if TYPE_CHECKING:
    from paceline.comm.group import Group
    from paceline.comm.world import World

_PREEMPTED = 1
_SNAPSHOT = 1 << 20
"""Counts of up to a million ranks lie beside each other in one number."""


class StepFlags:
    """This rank's flags, and those of which it has received that some rank has raised them."""

    def __init__(self) -> None:
        self.preemption_requested = False
        self.wants_snapshot = False
        self._received = 0

    @property
    def own(self) -> int:
        """What this rank wants, as a number that is summed over ranks."""
        return _PREEMPTED * self.preemption_requested + _SNAPSHOT * self.wants_snapshot

    def receive(self, total: int) -> None:
        """Some message brought the sum of the ranks' flags."""
        self._received |= int(total)

    @property
    def is_leaving(self) -> bool:
        """Whether some rank wants to leave, as all ranks know."""
        return self._received % _SNAPSHOT > 0

    def take_snapshot(self) -> bool:
        """Whether some rank wants a snapshot, as all ranks know; asked once for each time that it is raised."""
        is_wanted = self._received >= _SNAPSHOT
        self._received %= _SNAPSHOT
        if is_wanted:
            self.wants_snapshot = False
        return is_wanted


def flags_of_all(world: "World", group: "Group") -> StepFlags:
    """This rank's flags, which have received the others' of this step. Collective, unless the step goes over MPI.

    Over MPI they came with the count of the step's rows, in a pipeline with the sum of its losses; TensorFlow's own
    collectives carry only what is in its graphs.

    Args:
        world: This process's.
        group: The ranks that take the step together.
    """
    flags = world.flags
    if group.size == 1:
        if flags.preemption_requested:
            flags.receive(flags.own)
    elif world.communication is not Communication.MPI:
        import numpy as np  # only a script that trains needs it

        [total] = group.all_reduce([np.array(flags.own, np.int64)])
        flags.receive(int(total))
    return flags
