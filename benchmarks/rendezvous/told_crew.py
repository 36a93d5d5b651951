"""Workers that are only told of: they start, meet in the barriers of MPI's start with keys like MPI's, and end."""

import os
import time
from collections.abc import Mapping, Sequence

from paceline.cluster.spec import Address
from paceline.launcher.workers.address_check import look_for
from paceline.launcher.workers.crew import Crew, CrewListener
from paceline.rendezvous.agent_messages import Begin, HostFacts
from paceline.rendezvous.channel import Joined, Joining

_CARD_SEGMENTS = 9
_CARD = "0123456789ABCDEF" * 31
"""What MPICH 5 with UCX puts for one rank of each host, in segments: 2.8 KB with one network interface, 4.4 KB with
three."""


class ToldCrew(Crew):
    """In place of `LocalCrew`, which would start processes.

    Args:
        facts: Of the host.
    """

    def __init__(self, facts: HostFacts) -> None:
        self._facts = facts
        self.released_at = 0.0
        """When the last barrier let its ranks go, on the system's monotonic clock."""

    @property
    def facts(self) -> HostFacts:
        return self._facts

    @property
    def shows_own_output(self) -> bool:
        return True

    def begin(self, order: Begin, listener: CrewListener) -> None:
        self._listener = listener
        self._ranks = [identity.rank for identity in order.identities]
        self._barriers = iter((self._names(), self._cards(), {}))
        for rank in self._ranks:
            listener.started(rank, os.getpid())
            listener.said(rank, Joining())
        self._enter(next(self._barriers))

    def release(self, keys: Mapping[str, str]) -> None:
        following = next(self._barriers, None)
        if following is not None:
            self._enter(following)
            return
        self.released_at = time.monotonic()
        for rank in self._ranks:
            self._listener.said(rank, Joined())
            self._listener.ended(rank, 0)

    async def look(self, target: HostFacts, addresses: Sequence[Address], key: bytes) -> tuple[str, ...]:
        return await look_for(target.hostname, target.pid, addresses, key)

    def last_words(self, rank: int) -> tuple[str, ...]:
        return ()

    async def finish(self) -> None: ...
    def terminate(self, ranks: Sequence[int], why: str = "") -> None: ...
    def replace(self, rank: int) -> None: ...
    async def newest_snapshot(self, directory: str) -> str:
        return ""

    def examine(self, ranks: Sequence[int]) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...

    def _enter(self, keys: Mapping[int, Mapping[str, str]]) -> None:
        for rank in self._ranks:
            self._listener.fenced(rank, keys.get(rank, {}))

    def _names(self) -> dict[int, dict[str, str]]:
        return {rank: {f"hostname[{rank}]": self._facts.machine_id} for rank in self._ranks}

    def _cards(self) -> dict[int, dict[str, str]]:
        root = self._ranks[0]
        return {root: {f"-allgather-1-{root}-seg-{number}": _CARD for number in range(_CARD_SEGMENTS)}}
