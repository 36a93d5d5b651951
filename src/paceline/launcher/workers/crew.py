"""The interface by which the head controls the workers of one host, this host or another one.

head: Supervision ── begin, orders, finish ──► Crew ──► workers of a host
                  ◄──────── reports ──────────┘
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from paceline.cluster.spec import Address
from paceline.events.head_events import ClockMeasured, HostLost
from paceline.rendezvous.agent_messages import Begin, HostFacts, Order, Report

UNSEEN_EXIT = 256
"""In place of an exit code: how a process ended that is no child of its agent, and said nothing. None exits with it."""

START_AGAIN = "Start all ranks again with the same commands."
"""What the user of workers that were started by hand is told to do."""

Heard = Report | HostLost | ClockMeasured
"""What the crews of a generation tell of their hosts."""
CrewListener = Callable[[Heard], None]
"""Who is told what the crews of a generation do; called in the event loop's thread."""


class Crew(ABC):
    """The workers of one host, one generation after the other."""

    @property
    @abstractmethod
    def facts(self) -> HostFacts:
        """What its agent says about the host."""

    @abstractmethod
    def begin(self, order: Begin, listener: CrewListener) -> None:
        """Starts the processes of a generation; the one before must be finished.

        Raises:
            OSError: this host cannot start them. (Another host would be lost.)
        """

    @abstractmethod
    def obey(self, order: Order) -> None:
        """Carries out an order, as far as it concerns workers of this crew: an order to all is given to every crew."""

    @abstractmethod
    async def finish(self) -> None:
        """Ends the generation: nothing of it is left, and all of its output has been passed on."""

    @property
    @abstractmethod
    def shows_own_output(self) -> bool:
        """Whether its host shows and keeps what its workers write; then there are no reports of what they wrote."""

    def hold_output(self, held: bool) -> None:
        """Stops reading what workers write (they wait when their pipes are full), or goes on. Nothing where nobody
        here reads it.
        """
        del held

    @abstractmethod
    def close(self) -> None:
        """The job has ended."""

    async def newest_snapshot(self, directory: str) -> str:
        """The name of the newest snapshot in `directory` that this host can read; empty: it can read none.

        Raises:
            ConnectionError: this host is gone, or is none to be asked.
        """
        raise ConnectionError(directory)

    async def look(self, target: HostFacts, addresses: Sequence[Address], key: bytes) -> tuple[str, ...]:
        """Has this host try to reach `target` at `addresses`; by address why not, empty where it did.

        Raises:
            ConnectionError: this host is gone, or is none to be asked.
        """
        raise ConnectionError(target.hostname, addresses, key)
