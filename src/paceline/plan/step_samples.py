"""What `paceline predict` has measured of the steps of a short job."""

from dataclasses import dataclass
from typing import NamedTuple


class Parts(NamedTuple):
    """Seconds of one rank in one step."""

    input: float
    """Waits for its batch."""
    first_message: float
    """In the message with which a step begins."""
    compute: float
    messages: float
    """In the other ones."""
    update: float
    between: float
    """Keras's own loop, between two steps."""

    @property
    def before_messages(self) -> float:
        """From the last message of a step to the first one of the next."""
        return self.input + self.update + self.between


@dataclass(frozen=True, slots=True)
class StepSamples:
    """The steps of a job of some workers, of which the first ones were there, all on one host.

    Each had the rows of a batch, and the messages, that it has in the whole job.
    """

    workers: int
    """Of the whole job."""
    present: int
    num_rows: int | None
    """Of a global batch; None: the data do not tell."""
    steps: tuple[tuple[Parts, ...], ...]
    """Of each step, of each rank that was there."""
    num_messages: float
    """That a rank takes part in, in a step; 0 of a job of one worker."""
    reduced_bytes: float
    """That a rank gives to all-reduces in a step."""
    gathered_bytes: float
    """That a rank gives to the others as they are, in a step."""
