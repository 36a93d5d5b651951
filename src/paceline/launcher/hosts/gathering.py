"""The interface for connecting the hosts of a job before each generation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import EXIT_UNAVAILABLE
from paceline.launcher.workers.crew import Crew
from paceline.rendezvous.agent_messages import Interface


class NotGatheredError(Exception):
    """The hosts did not come together. Caught by the head.

    Args:
        lines: Why, for the user; each names a host.
        exit_code: Of the job.
    """

    def __init__(self, lines: Sequence[str], exit_code: int = EXIT_UNAVAILABLE) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Member:
    """A host of the coming generation."""

    crew: Crew
    num_workers: int
    interface: Interface


class Gathering(ABC):
    """One way to reach the hosts of a job."""

    @abstractmethod
    async def gather(self, generation: int) -> tuple[Member, ...]:
        """The hosts of the next generation, the chief's first; blocks until they are there.

        Raises:
            NotGatheredError: they are not all there in time.
        """

    @abstractmethod
    def tell(self, lines: Sequence[str]) -> None:
        """Words for the users of hosts that show their own output."""

    @abstractmethod
    def show_life(self) -> None:
        """Tells all hosts that this one lives; called while its event loop is held up by a reader that pauses."""

    @abstractmethod
    async def close(self, exit_code: int) -> None:
        """The job has ended: lets go of all hosts."""
