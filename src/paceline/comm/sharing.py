"""Who is told of each step's first message where the rows of batches are shared out anew (``--shares auto``)."""

from typing import Protocol

from paceline.comm.group import Array


class Sharing(Protocol):
    """See the module. Of one message all ranks hear the same, so they decide alike."""

    def step_begins(self) -> int:
        """This rank enters the message.

        Returns:
            A number of batches, which goes with it. Until `step_has_begun` this rank takes its rows of no batch behind
            them.
        """
        ...

    def hear(self, first: int, told: Array, rows: Array, num_batches: int) -> None:
        """What the message of a step that is timed has brought.

        Args:
            first: The first of the ranks whose clocks are told.
            told: What their clocks say, as `StepClock.hear` has it.
            rows: Of each rank in this step, int64.
            num_batches: The most that a rank has said in `step_begins`.
        """
        ...

    def step_has_begun(self) -> None:
        """This rank has left the message, or has raised in it."""
        ...
