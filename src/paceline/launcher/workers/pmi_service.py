"""MPI's process manager for the ranks of this host: answers PMI-1 on each worker's inherited socket.

The words are ``rendezvous/pmi.py``'s; this file moves bytes. It lives in the agent, not in the worker,
because `MPI_Init` holds the interpreter lock of the rank that asks. Barriers are the whole job's: they are
handed to the head, which may be on another host.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paceline.rendezvous.pmi import MAX_LINE_BYTES, PmiSession

_READ_BYTES = 1 << 16


@dataclass(slots=True)
class _Served:
    session: PmiSession
    connection: socket.socket
    unread: bytes = b""


class PmiService:
    """Serves the ranks of this host for one generation.

    Args:
        loop: Where the sockets are watched.
        world_size: How many ranks the job has.
        store_name: Unique per job and generation, the same on every host.
        on_fence: Called with a rank and the keys that it brings into a barrier; answer with `release`.
        complain: Called with a line for the user when a rank says something that is not PMI-1.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        world_size: int,
        store_name: str,
        on_fence: Callable[[int, Mapping[str, str]], None],
        complain: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._world_size = world_size
        self._store_name = store_name
        self._on_fence = on_fence
        self._complain = complain
        self._ranks: dict[int, _Served] = {}

    def serve(self, rank: int, connection: socket.socket) -> None:
        """Begins to answer `rank` on `connection`, which is closed at the end of the conversation."""
        connection.setblocking(False)
        session = PmiSession(rank=rank, size=self._world_size, store_name=self._store_name)
        self._ranks[rank] = _Served(session, connection)
        self._loop.add_reader(connection, self._read, rank)

    def release(self, keys: Mapping[str, str]) -> None:
        """All ranks of the job are in the barrier, with these keys in total."""
        for served in self._ranks.values():
            if served.session.waiting:
                _send(served.connection, served.session.release(keys))

    def close(self) -> None:
        """Ends all conversations."""
        for rank in list(self._ranks):
            self._hang_up(rank)

    def _read(self, rank: int) -> None:
        served = self._ranks[rank]
        try:
            data = served.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up(rank)
            return
        *lines, served.unread = (served.unread + data).split(b"\n")
        try:
            for line in lines:
                self._answer(rank, served, line)
            if len(served.unread) > MAX_LINE_BYTES:
                raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
        except (ValueError, KeyError) as fault:
            self._complain(f"rank {rank} does not speak PMI-1, so its MPI cannot start: {fault}")
            self._hang_up(rank)

    def _answer(self, rank: int, served: _Served, line: bytes) -> None:
        reply = served.session.answer(line.decode("ascii", "replace") + "\n")
        if reply is not None:
            _send(served.connection, reply)
        elif served.session.waiting:
            self._on_fence(rank, dict(served.session.pending))

    def _hang_up(self, rank: int) -> None:
        served = self._ranks.pop(rank, None)
        if served is not None:
            self._loop.remove_reader(served.connection)
            served.connection.close()


def _send(connection: socket.socket, text: str) -> None:
    # The lines are short and each is awaited by its rank: a socket's buffer always has room for one.
    with contextlib.suppress(OSError):
        connection.sendall(text.encode("ascii"))
