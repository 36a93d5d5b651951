"""Records on a stream of bytes, with every length bounded. Pure, but for the last two functions.

network           4 bytes length, big endian │ seal (after the handshake) │ record    `frame`, `FrameSplitter`
inherited socket  record up to a newline                                              `line`, `LineSplitter`

Lines recover from what a script writes there by mistake; on the network, such a stream is not read any further. There
each record carries a seal, which keeps out whoever sees the connection and does not know the job's key.
"""

import hashlib
import hmac
import socket
import time

from paceline.wire.codec import GarbledError, encode

SEAL_BYTES = 16
_NUMBER_BYTES = 8


class Seal:
    """One end's seal of a conversation: a proof of who sent each message, and of its place. Pure.

        sealed body = HMAC-SHA256(session key, sender's role │ number of the message │ body), shortened │ body

    The session key comes from the job's key and both nonces of the handshake, so a recorded conversation proves nothing
    in another one; the number keeps messages from being repeated, left out or put in another order; the role keeps them
    from being sent back to their maker. Messages are not encrypted: see docs/security.md.

    >>> ours, theirs = Seal(b"k", is_initiator=True), Seal(b"k", is_initiator=False)
    >>> theirs.open(ours.close(b"hello"))
    b'hello'

    Args:
        session_key: Known to both ends.
        is_initiator: Whether this is the end that dialled.
    """

    def __init__(self, session_key: bytes, *, is_initiator: bool) -> None:
        self._session_key = session_key
        self._own_role, self._peer_role = (b"i", b"r") if is_initiator else (b"r", b"i")
        self._num_closed = 0
        self._num_opened = 0

    def close(self, body: bytes) -> bytes:
        """`body` with its seal; to be sent next."""
        sealed = self._seal(self._own_role, self._num_closed, body) + body
        self._num_closed += 1
        return sealed

    def open(self, sealed: bytes) -> bytes:
        """The body of the next message that the other end has sent.

        Raises:
            GarbledError: the other end did not send this, or not now.
        """
        seal, body = sealed[:SEAL_BYTES], sealed[SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(self._peer_role, self._num_opened, body)):
            raise GarbledError("a message with a wrong authentication code")
        self._num_opened += 1
        return body

    def _seal(self, role: bytes, number: int, body: bytes) -> bytes:
        context = role + number.to_bytes(_NUMBER_BYTES)
        return hmac.new(self._session_key, context + body, hashlib.sha256).digest()[:SEAL_BYTES]


MAX_FRAME_BYTES = 1 << 20
_LENGTH_BYTES = 4


def frame(record: object, seal: Seal | None = None) -> bytes:
    """`record` as it goes over the network, under `seal` if there is one.

    >>> frame({"a": 1})
    b'\\x00\\x00\\x00\\x07{"a":1}'

    Raises:
        ValueError: it is longer than `MAX_FRAME_BYTES`.
    """
    body = encode(record)
    if len(body) + SEAL_BYTES > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is longer than the {MAX_FRAME_BYTES} that a frame holds")
    if seal is not None:
        body = seal.close(body)
    return len(body).to_bytes(_LENGTH_BYTES) + body


def line(record: object) -> bytes:
    """`record` as it goes over an inherited socket, newline included."""
    return encode(record) + b"\n"


class FrameSplitter:
    """Collects received bytes and gives them back as whole bodies, for a `codec.Decoder`.

    The limit is given at each `next_body`, not once: a stranger is allowed far less than a peer who has
    proved that it knows the key, and both speak on one stream. A length beyond the limit is refused before
    its body is awaited.
    """

    def __init__(self) -> None:
        self._received = bytearray()
        self._seal: Seal | None = None

    def expect(self, seal: Seal) -> None:
        """From the next message on, all are under `seal`."""
        self._seal = seal

    def feed(self, data: bytes) -> None:
        """Adds what the socket gave."""
        self._received += data

    def next_body(self, limit_bytes: int = MAX_FRAME_BYTES) -> bytes | None:
        """The next whole message, or None when its bytes have not all arrived.

        Raises:
            GarbledError: no message of this protocol; the stream cannot be read any further.
        """
        if len(self._received) < _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._received[:_LENGTH_BYTES])
        if length > limit_bytes:
            raise GarbledError(f"a frame of {length} bytes was announced, at most {limit_bytes} are accepted")
        end = _LENGTH_BYTES + length
        if len(self._received) < end:
            return None
        body = bytes(self._received[_LENGTH_BYTES:end])
        del self._received[:end]
        return body if self._seal is None else self._seal.open(body)


class LineSplitter:
    """Collects received bytes and gives them back as whole lines, without their newline.

    >>> lines = LineSplitter(100)
    >>> lines.feed(b"one\\ntw"), lines.feed(b"o\\n")
    ([b'one'], [b'two'])

    Args:
        limit_bytes: A longer line is refused.
    """

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._received = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes.

        Raises:
            GarbledError: a line is longer than the limit; it is forgotten.
        """
        *lines, self._received = (self._received + data).split(b"\n")
        if any(len(line) > self._limit_bytes for line in (*lines, self._received)):
            self._received = b""
            raise GarbledError(f"a line longer than {self._limit_bytes} bytes")
        return lines


def receive_frame(
    connected: socket.socket, splitter: FrameSplitter, deadline: float, limit_bytes: int = MAX_FRAME_BYTES
) -> bytes:
    """The next body on `connected`; blocks until the monotonic time `deadline`.

    Raises:
        OSError: the time is over, or the connection has ended.
        GarbledError: see `FrameSplitter.next_body`.
    """
    while (body := splitter.next_body(limit_bytes)) is None:
        connected.settimeout(max(0.001, deadline - time.monotonic()))
        data = connected.recv(4096)
        if not data:
            raise ConnectionError("the connection was closed")
        if time.monotonic() > deadline:
            raise TimeoutError
        splitter.feed(data)
    return body


def receive_line(connected: socket.socket, seconds: float | None, limit_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """The first line on `connected`, on which nothing follows before it is answered; blocks for `seconds` at most.

    Raises:
        OSError: the time is over, or the connection has ended.
        GarbledError: it is too long.
    """
    lines = LineSplitter(limit_bytes)
    connected.settimeout(seconds)
    while not (received := lines.feed(data := connected.recv(1 << 16))):
        if not data:
            raise ConnectionError("closed")
    connected.settimeout(None)
    return received[0]
