"""One connection in the event loop: records in and out, never blocking, everything bounded."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from paceline.wire.codec import GarbledError
from paceline.wire.frames import MAX_FRAME_BYTES, FrameSplitter, Seal, frame

HEARTBEAT_INTERVAL_SECONDS = 2.0
SILENCE_LIMIT_SECONDS = 10.0
"""A peer that says nothing for so long is gone: its host vanished, or the network between."""

_MAX_UNSENT_BYTES = 16 * MAX_FRAME_BYTES
_READ_BYTES = 1 << 16

Heard = TypeVar("Heard")
Callback = Callable[[], None]
OnClosed = Callable[[str], None]
"""Called once, with why the connection ended, unless `close` ended it."""


class Connection:
    """A connected socket in the loop.

    Args:
        loop: The loop.
        connected: The socket; owned from now on.
        splitter: What was already received on it.
        seal: What messages are under from the first one on; None: see `use_seal`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        splitter: FrameSplitter | None = None,
        seal: Seal | None = None,
    ) -> None:
        self._loop = loop
        self._socket = connected
        self._splitter = splitter or FrameSplitter()
        self._seal = seal
        self._on_relief: Callback | None = None
        self._unsent = bytearray()
        self._limit_bytes = MAX_FRAME_BYTES
        self._on_body: Callable[[bytes], None] = _ignore
        self._on_closed: OnClosed = _ignore
        self._open = True
        self.heard_at = loop.time()
        connected.setblocking(False)
        notice_vanished_peers(connected)

    @property
    def peer_host(self) -> str:
        """The numeric address of the other end."""
        try:
            return str(self._socket.getpeername()[0])
        except OSError:
            return "unknown"

    def attach(
        self,
        decode: Callable[[bytes], Heard],
        on_message: Callable[[Heard], None],
        on_closed: OnClosed,
        limit_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        """From the next message on, these are called; a conversation's next stage may attach others.

        Args:
            decode: Makes a message of a body; its `GarbledError` ends the connection.
            on_message: Takes it.
            on_closed: See `OnClosed`.
            limit_bytes: Of a body.
        """

        def on_body(body: bytes) -> None:
            try:
                message = decode(body)
            except GarbledError as fault:
                self.fail(f"it sent an invalid message: {fault}")
            else:
                on_message(message)

        self._on_body, self._on_closed, self._limit_bytes = on_body, on_closed, limit_bytes
        self._watch()

    def is_silent(self) -> bool:
        """Whether the peer has said nothing for too long."""
        return self._loop.time() - self.heard_at > SILENCE_LIMIT_SECONDS

    def use_seal(self, seal: Seal) -> None:
        """From now on all messages, both ways, are under `seal`."""
        self._seal = seal
        self._splitter.expect(seal)

    @property
    def is_congested(self) -> bool:
        """Whether the peer takes less than is sent; ask for `call_at_relief` and send no bulk until then."""
        return len(self._unsent) > MAX_FRAME_BYTES

    def call_at_relief(self, callback: Callback) -> None:
        """Calls `callback` once, when the connection is no longer congested."""
        self._on_relief = callback

    def send(self, message: object) -> None:
        """Sends `message` as soon as the peer takes it; on a closed connection nothing happens.

        Raises:
            ValueError: the message is longer than a frame may be.
        """
        if not self._open:
            return
        self._unsent += frame(message, self._seal)
        self._write()

    def close(self) -> None:
        """Ends the connection now."""
        if self._open:
            self._open = False
            self._forget()
            self._socket.close()

    def fail(self, reason: str) -> None:
        """Ends the connection now and tells its owner `reason`, as when the peer had ended it."""
        if self._open:
            self.close()
            self._on_closed(reason)

    def send_last(self, until: float) -> None:
        """Sends what is unsent, and that no more comes. Blocks until the time `until` at most."""
        if self._open:
            self._forget()
            with contextlib.suppress(OSError):
                self._socket.settimeout(max(0.01, until - time.monotonic()))
                self._socket.sendall(self._unsent)
                self._socket.shutdown(socket.SHUT_WR)

    def read_last(self, until: float) -> None:
        """After `send_last`: ends the connection once the peer has said that no more comes, or at the time `until`."""
        if self._open:
            self._open = False
            with self._socket, contextlib.suppress(OSError):
                while (seconds := until - time.monotonic()) > 0:
                    self._socket.settimeout(seconds)
                    if not self._socket.recv(_READ_BYTES):
                        break

    def _watch(self) -> None:
        self._loop.add_reader(self._socket, self._read)
        if self._unsent:
            self._loop.add_writer(self._socket, self._write)
        else:
            self._loop.remove_writer(self._socket)

    def _forget(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            # Reading will find the end, too, and before it the peer's last words: why it closed.
            sent = len(self._unsent)
        del self._unsent[:sent]
        if len(self._unsent) > _MAX_UNSENT_BYTES:
            self._loop.call_soon(self.fail, "it does not read its messages")
            return
        self._watch()
        if self._on_relief is not None and not self.is_congested:
            relieved, self._on_relief = self._on_relief, None
            relieved()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as fault:
            self.fail(f"the connection to it was lost ({fault.strerror})")
            return
        if not data:
            self.fail("the connection to it was closed")
            return
        self.heard_at = self._loop.time()
        self._splitter.feed(data)
        while self._open:
            try:
                body = self._splitter.next_body(self._limit_bytes)
            except GarbledError as fault:
                self.fail(f"it sent an invalid message: {fault}")
                return
            if body is None:
                return
            self._on_body(body)


def notice_vanished_peers(connected: socket.socket) -> None:
    """Lets the kernel find out within `SILENCE_LIMIT_SECONDS` that the other host is gone; sends small
    messages at once.
    """
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return  # the other end is on this host: the kernel knows at once
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 4),
        ("TCP_KEEPINTVL", 2),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(SILENCE_LIMIT_SECONDS * 1000)),
    ):
        if hasattr(socket, option):  # Linux has all of them, other systems some
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def finish_all(connections: Sequence[Connection], seconds: float = 1.0) -> None:
    """Ends connections once their peers have all that was sent, within `seconds` in all. Blocks; for the very end.

    Closing with unread bytes in the receive buffer would reset a connection, and the peer could lose our last message:
    so this end says "no more" and reads until the other does too.
    """
    until = time.monotonic() + seconds
    for connection in connections:
        connection.send_last(until)
    for connection in connections:
        connection.read_last(until)


def _ignore(_: object) -> None:
    return
