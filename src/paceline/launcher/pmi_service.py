"""MPI's process manager for the ranks of this host: answers PMI-1 on each worker's inherited socket.

The words are ``rendezvous/pmi.py``'s; this file moves bytes. It lives in the agent, not in the worker,
because `MPI_Init` holds the interpreter lock of the rank that asks.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from paceline.rendezvous.pmi import MAX_LINE_BYTES, Fence, PmiSession

_READ_BYTES = 1 << 16


class PmiService:
    """Serves one generation.

    Args:
        loop: Where the sockets are watched.
        world_size: How many ranks there are, all on this host.
        store_name: Unique per job and generation.
        complain: Called with a line for the user when a rank says something that is not PMI-1.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        world_size: int,
        store_name: str,
        complain: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._complain = complain
        self._fence = Fence(world_size)
        self._sessions = [PmiSession(rank=rank, size=world_size, store_name=store_name) for rank in range(world_size)]
        self._connections: dict[int, socket.socket] = {}
        self._unread = [b""] * world_size

    def serve(self, rank: int, connection: socket.socket) -> None:
        """Begins to answer `rank` on `connection`, which is closed at the end of the conversation."""
        connection.setblocking(False)
        self._connections[rank] = connection
        self._loop.add_reader(connection, self._read, rank)

    def close(self) -> None:
        """Ends all conversations."""
        for rank in list(self._connections):
            self._hang_up(rank)

    def _read(self, rank: int) -> None:
        try:
            data = self._connections[rank].recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up(rank)
            return
        *lines, self._unread[rank] = (self._unread[rank] + data).split(b"\n")
        try:
            for line in lines:
                self._answer(rank, line)
            if len(self._unread[rank]) > MAX_LINE_BYTES:
                raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
        except (ValueError, KeyError) as fault:
            self._complain(f"rank {rank} does not speak PMI-1, so its MPI cannot start: {fault}")
            self._hang_up(rank)

    def _answer(self, rank: int, line: bytes) -> None:
        session = self._sessions[rank]
        reply = session.answer(line.decode("ascii", "replace") + "\n")
        if reply is not None:
            self._send(rank, reply)
        if session.waiting:
            keys = self._fence.arrive(rank, session.pending)
            for other, released in enumerate(self._sessions if keys is not None else ()):
                self._send(other, released.release(keys or {}))

    def _send(self, rank: int, text: str) -> None:
        # The lines are short and each is awaited by its rank: a socket's buffer always has room for one.
        if rank in self._connections:
            with contextlib.suppress(OSError):
                self._connections[rank].sendall(text.encode("ascii"))

    def _hang_up(self, rank: int) -> None:
        connection = self._connections.pop(rank, None)
        if connection is not None:
            self._loop.remove_reader(connection)
            connection.close()
