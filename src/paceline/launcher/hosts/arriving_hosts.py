"""Hosts whose agents connect to the head by themselves, at an address that all of them know.

agent 1   dial ──► proof of the job's key ──► Here ──┐
agent 2   dial ──► proof of the job's key ──► Here ──┼──► head: complete? alike? ──► a generation
the head's own crew ─────────────────────────────────┘
"""

import asyncio
import os
import socket
from abc import abstractmethod
from collections.abc import Sequence

from paceline.launcher.hosts.gathering import Gathering
from paceline.launcher.hosts.link import Link
from paceline.launcher.hosts.remote_crew import RemoteCrew
from paceline.launcher.workers.crew import Crew
from paceline.rendezvous.agent_messages import Here, HostFacts, Message, Refused
from paceline.rendezvous.connection import Connection
from paceline.rendezvous.listener import Listener
from paceline.wire.handshake import Identity


class ArrivingHosts(Gathering):
    """Listens for agents, and keeps the crew of each that belongs to the job by its number.

    Args:
        loop: The running event loop.
        num_hosts: How many there are, the head's own among them, which is number 0.
        key: The job's key.
        port: The listening socket; owned from now on.
        hostname: Of this host.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, num_hosts: int, key: bytes, port: socket.socket, hostname: str
    ) -> None:
        self._loop = loop
        self._num_hosts = num_hosts
        self._crews: dict[int, RemoteCrew] = {}
        self._changed = asyncio.Event()
        self._failure: Refused | None = None
        """What ends the start, because waiting cannot heal it."""
        self._listener = Listener(loop, port, key, Identity(0, hostname, os.getpid()))
        self._listener.start(self._meet, self._meet_foreigner)

    @abstractmethod
    def _meet_foreigner(self, host: str, version: str) -> None:
        """See `Listener.start`."""

    @abstractmethod
    def _refusal(self, here: Here) -> Refused | None:
        """Why the agent that says `here` cannot take part; None: it does."""

    def _welcome(self, here: Here, link: Link) -> bool:
        """An agent has said who it is: takes it in, or says why not; which of the two."""
        refusal, number = self._refusal(here), here.facts.node_rank
        if refusal is None:
            assert number is not None
            self._crews[number] = RemoteCrew(link, here.facts, shows_own_output=True)
        else:
            link.send(refusal)
        self._changed.set()
        return refusal is None

    @property
    def _missing(self) -> list[int]:
        return [number for number in range(1, self._num_hosts) if not self._is_present(number)]

    def _is_present(self, number: int) -> bool:
        return number in self._crews and not self._crews[number].is_lost

    def _all_crews(self, own: Crew) -> list[Crew]:
        return [own, *(self._crews[number] for number in sorted(self._crews))]

    async def _until_changed(self, seconds: float) -> None:
        """Until an agent has come, or could not; for `seconds` at most."""
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return

    def _meet(self, connection: Connection) -> None:
        """An agent has proved that it knows the key; its first message says who it is."""
        link = Link(self._loop, connection)

        def hear(message: Message) -> None:
            if not isinstance(message, Here):
                link.fail("sent a message out of turn")
                return
            self._welcome(message, link)

        link.start(hear, lambda _: None)

    def tell(self, lines: Sequence[str]) -> None:
        """See `Gathering.tell`."""
        for crew in self._crews.values():
            crew.tell(lines)

    def show_life(self) -> None:
        """See `Gathering.show_life`."""
        for crew in self._crews.values():
            crew.show_life()

    def _facts_of(self, number: int) -> HostFacts | None:
        """Of the agent with this number that is there; None: there is none."""
        return self._crews[number].facts if self._is_present(number) else None
