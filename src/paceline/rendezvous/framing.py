"""Cutting a stream of bytes into messages, with every length bounded. Pure: bytes in, messages out.

network           4 bytes length, big endian │ seal (after the handshake) │ JSON      `frame`, `FrameSplitter`
inherited socket  text up to a newline                                                `LineSplitter`
"""

import json
from collections.abc import Mapping

from paceline.rendezvous.records import parse_object
from paceline.rendezvous.sealing import SEAL_BYTES, Seal

MAX_FRAME_BYTES = 1 << 20
_LENGTH_BYTES = 4


def frame(message: Mapping[str, object], seal: Seal | None = None) -> bytes:
    """`message` as it goes over the network, under `seal` if there is one.

    >>> frame({"a": 1})
    b'\\x00\\x00\\x00\\x07{"a":1}'

    Raises:
        ValueError: it is longer than `MAX_FRAME_BYTES`.
    """
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(body) + SEAL_BYTES > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is longer than the {MAX_FRAME_BYTES} that a frame holds")
    if seal is not None:
        body = seal.close(body)
    return len(body).to_bytes(_LENGTH_BYTES) + body


class FrameSplitter:
    """Collects received bytes and gives them back as whole JSON objects.

    The limit is given at each `next_object`, not once: a stranger is allowed far less than a peer who has
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

    def next_object(self, limit_bytes: int = MAX_FRAME_BYTES) -> dict[str, object] | None:
        """The next whole message, or None when its bytes have not all arrived.

        Raises:
            ValueError: no message of this protocol; the stream cannot be read any further.
        """
        if len(self._received) < _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._received[:_LENGTH_BYTES])
        if length > limit_bytes:
            raise ValueError(f"a frame of {length} bytes was announced, at most {limit_bytes} are accepted")
        end = _LENGTH_BYTES + length
        if len(self._received) < end:
            return None
        body = bytes(self._received[_LENGTH_BYTES:end])
        del self._received[:end]
        return parse_object(body if self._seal is None else self._seal.open(body))


class LineSplitter:
    """Collects received bytes and gives them back as whole lines, without their newline.

    >>> lines = LineSplitter(100)
    >>> lines.feed(b"one\\ntw"), lines.feed(b"o\\n")
    ([b'one'], [b'two'])

    Args:
        limit_bytes: A longer line is refused.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._received = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes.

        Raises:
            ValueError: a line is longer than the limit.
        """
        *lines, self._received = (self._received + data).split(b"\n")
        if any(len(line) > self._limit_bytes for line in (*lines, self._received)):
            raise ValueError(f"a line longer than {self._limit_bytes} bytes")
        return lines
