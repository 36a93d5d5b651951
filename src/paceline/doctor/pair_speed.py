"""The network between two hosts: one sends back what the other one sends.

Small messages tell the latency, large ones the bandwidth in both directions at once, as an all-reduce uses it. Whoever
does not know the key is sent nothing.
"""

import contextlib
import hmac
import socket
import threading
import time

from paceline.doctor.records import Meet, Met

DEADLINE_SECONDS = 20.0
"""After which a port that nobody has used is closed."""

_CONNECT_SECONDS = 2.0
_SILENCE_SECONDS = 6.0
_READ_BYTES = 1 << 18
_MOST_KEY_BYTES = 64
_NUM_ROUND_TRIPS = 30
_FIRST_BYTES, _MOST_BYTES = 1 << 14, 1 << 25
_ENOUGH_SECONDS = 0.2
"""A transfer that takes so long is no longer ruled by the buffers on its way."""


def listen(key: bytes) -> int:
    """The port on which one peer that knows `key` is answered, in a thread."""
    port = socket.create_server(("", 0))
    number: int = port.getsockname()[1]
    threading.Thread(target=_serve, args=(port, key), name="answers a peer", daemon=True).start()
    return number


def _serve(port: socket.socket, key: bytes) -> None:
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    with port:
        while (left := give_up_at - time.monotonic()) > 0:
            with contextlib.suppress(OSError):
                port.settimeout(left)
                connected, _ = port.accept()
                with connected:
                    connected.settimeout(_CONNECT_SECONDS)
                    if not hmac.compare_digest(_received(connected, len(key)), key):
                        continue
                    port.close()
                    connected.settimeout(_SILENCE_SECONDS)
                    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connected.sendall(key)
                    while data := connected.recv(_READ_BYTES):
                        connected.sendall(data)
                    return


def meet(question: Meet) -> Met:
    """What the network does at the first address that answers; blocks for seconds."""
    reasons = []
    for address in question.addresses:
        try:
            with socket.create_connection((address, question.port), timeout=_CONNECT_SECONDS) as connected:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connected.sendall(question.key)
                if _received(connected, len(question.key)) != question.key:
                    raise ConnectionError("another program answers there")
                connected.settimeout(_SILENCE_SECONDS)
                return _measured(connected)
        except OSError as fault:
            reasons.append(f"{address} ({fault.strerror or fault})")
    return Met(fault="; ".join(reasons) or "it has no address")


def _measured(connected: socket.socket) -> Met:
    round_trip = min(_echo_seconds(connected, 1) for _ in range(_NUM_ROUND_TRIPS))
    size = _FIRST_BYTES
    while (seconds := _echo_seconds(connected, size)) < _ENOUGH_SECONDS and size < _MOST_BYTES:
        size *= 2
    best = min(seconds, _echo_seconds(connected, size))  # a busy moment is none of the network's
    return Met(round_trip, size / best)


def _echo_seconds(connected: socket.socket, size: int) -> float:
    """How long `size` bytes take to the peer and back."""
    data = bytes(size)
    began = time.monotonic()
    if size == 1:
        connected.sendall(data)
        _received(connected, size)
    else:  # both at once, or the two hosts would wait for each other

        def send() -> None:
            with contextlib.suppress(OSError):  # the receiver hears of it, too
                connected.sendall(data)

        sender = threading.Thread(target=send, name="sends to a peer", daemon=True)
        sender.start()
        _received(connected, size)
        sender.join()
    return time.monotonic() - began


def _received(connected: socket.socket, size: int) -> bytes:
    """`size` bytes of the peer; empty where they are too many for a key: nobody looks at those.

    Raises:
        OSError: the peer is silent or gone.
    """
    data = b""
    left = size
    while left:
        received = connected.recv(min(left, _READ_BYTES))
        if not received:
            raise ConnectionError("the connection was closed")
        left -= len(received)
        data = data + received if size <= _MOST_KEY_BYTES else b""
    return data
