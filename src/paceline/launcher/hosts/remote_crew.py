"""The workers of another host, controlled through the connection to its agent."""

import asyncio
from collections.abc import Sequence

from paceline.cluster.spec import Address
from paceline.events.head_events import ClockMeasured, HostLost
from paceline.launcher.hosts.link import Link
from paceline.launcher.workers.crew import Crew, CrewListener
from paceline.rendezvous.agent_messages import (
    Begin,
    FindSnapshot,
    Finish,
    Finished,
    HostFacts,
    Look,
    Message,
    Order,
    Over,
    Refused,
    Release,
    Report,
    Seen,
    SnapshotFound,
    Tell,
    Unfit,
    Waiting,
)

_KEYS_OF_A_MESSAGE = 256
"""A value has 1 KB at most (``rendezvous/pmi.py``), a message 1 MB."""

FINISH_SECONDS = 6.0
"""An agent that has not ended a generation by then is taken for lost."""


class RemoteCrew(Crew):
    """Tells an agent what to do, and its listener what the agent says.

    Args:
        link: To the agent, which has said who it is.
        facts: What it has said.
        shows_own_output: Whether the agent shows what its workers write.
    """

    def __init__(self, link: Link, facts: HostFacts, *, shows_own_output: bool) -> None:
        self.link = link
        self._facts = facts
        self._shows_own_output = shows_own_output
        self._listener: CrewListener | None = None
        self._ranks: tuple[int, ...] = ()
        self._finished = asyncio.Event()
        self._seen: asyncio.Future[tuple[str, ...]] | None = None
        self._snapshot: asyncio.Future[str] | None = None
        self._lost_because: str | None = None
        link.on_clock = self._tell_clock
        link.attach(self._hear, self._lose)

    @property
    def facts(self) -> HostFacts:
        """See `Crew.facts`."""
        return self._facts

    @property
    def shows_own_output(self) -> bool:
        """See `Crew.shows_own_output`."""
        return self._shows_own_output

    @property
    def is_lost(self) -> bool:
        """Whether its agent is gone."""
        return self._lost_because is not None

    def begin(self, order: Begin, listener: CrewListener) -> None:
        """See `Crew.begin`."""
        self._listener = listener
        self._ranks = tuple(identity.rank for identity in order.identities)
        self._finished.clear()
        self.link.send(order)
        if self._lost_because is not None:  # between its arrival and now
            listener(HostLost(self._ranks, self._facts.hostname, self._lost_because))

    def obey(self, order: Order) -> None:
        """See `Crew.obey`."""
        if not isinstance(order, Release):
            self.link.send(order)
            return
        items = list(order.keys.items())
        for first in range(0, max(1, len(items)), _KEYS_OF_A_MESSAGE):
            part = dict(items[first : first + _KEYS_OF_A_MESSAGE])
            self.link.send(Release(part, is_last=first + _KEYS_OF_A_MESSAGE >= len(items)))

    async def finish(self) -> None:
        """See `Crew.finish`."""
        if self.is_lost:
            return
        self.link.send(Finish())
        try:
            await asyncio.wait_for(self._finished.wait(), FINISH_SECONDS)
        except TimeoutError:
            self.link.fail(f"did not end its workers within {FINISH_SECONDS:g} s")
        self._listener = None

    def close(self) -> None:
        """See `Crew.close`: ends the line."""
        self.link.close()

    def show_life(self) -> None:
        """Tells the agent that the head lives, although its event loop is held up."""
        self.link.show_life()

    def tell(self, lines: Sequence[str]) -> None:
        """Words for the user of that host."""
        self.link.send(Tell(tuple(lines)))

    def report_missing(self, waiting: Waiting) -> None:
        """Says which ranks are awaited still."""
        self.link.send(waiting)

    def refuse(self, refused: Refused) -> None:
        """The job does not start."""
        self.link.send(refused)

    def dismiss(self, exit_code: int) -> None:
        """The job has ended with `exit_code`, as the agent's will."""
        self.link.send(Over(exit_code))

    async def newest_snapshot(self, directory: str) -> str:
        """See `Crew.newest_snapshot`."""
        if self._lost_because is not None:
            raise ConnectionError(self._lost_because)
        self._snapshot = asyncio.get_running_loop().create_future()
        self.link.send(FindSnapshot(directory))
        return await self._snapshot

    async def look(self, target: HostFacts, addresses: Sequence[Address], key: bytes) -> tuple[str, ...]:
        """See `Crew.look`."""
        if self._lost_because is not None:
            raise ConnectionError(self._lost_because)
        self._seen = asyncio.get_running_loop().create_future()
        self.link.send(Look(target.hostname, target.pid, tuple(addresses), key))
        return await self._seen

    def _hear(self, message: Message) -> None:
        if isinstance(message, Seen):
            if self._seen is not None and not self._seen.done():
                self._seen.set_result(message.reasons)
        elif isinstance(message, SnapshotFound):
            if self._snapshot is not None and not self._snapshot.done():
                self._snapshot.set_result(message.name)
        elif isinstance(message, Finished):
            self._tell_clock()
            self._finished.set()
        elif isinstance(message, Unfit):
            self.link.fail(message.reason)
        elif self._listener is not None:
            if isinstance(message, Report) and getattr(message, "rank", self._ranks[0]) in self._ranks:
                self._listener(message)
            else:
                self.link.fail(f"sent a message out of turn ({type(message).__name__})")

    def _tell_clock(self) -> None:
        if self._listener is not None and (quickest := self.link.clock.take()) is not None:
            at, offset, error = (nanoseconds / 1e9 for nanoseconds in quickest)
            self._listener(ClockMeasured(self._facts.hostname, at, offset, error))

    def _lose(self, reason: str) -> None:
        self._lost_because = reason
        self._finished.set()
        for answer in (self._seen, self._snapshot):
            if answer is not None and not answer.done():
                answer.set_exception(ConnectionError(reason))
        if self._listener is not None:
            self._listener(HostLost(self._ranks, self._facts.hostname, reason))
