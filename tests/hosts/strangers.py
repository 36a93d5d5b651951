"""python strangers.py ADDRESS KEY NUM_CONNECTIONS KIND,... PORT...: programs that do not belong to the job call.

Connections go to all ports in turn, and do one of these, in turn:

    noise       random bytes
    half        the length of a message, and a part of it
    slow        one byte, and then nothing for as long as this program runs
    wrong       the handshake of `paceline.rendezvous`, with another key
    replayed    the words of a handshake that was good (KEY, hexadecimal, makes one), said again
    http        what a scanner says
    ucx         UCX's own greeting, and then random bytes

Prints a JSON object: for each kind, how many connections were opened, refused, and answered with something.
"""

import contextlib
import itertools
import json
import os
import random
import resource
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable

from paceline.wire.frames import FrameSplitter, frame
from paceline.wire.handshake import Initiator, Proof

MAX_SLOW_AT_ONCE = 500
_PATIENCE_SECONDS = 60.0
_UCX_MAGIC = 0xCAFEBABE12345678


class Strangers:
    """Opens the connections.

    Args:
        address: Of the attacked host.
        key: The job's, for making a handshake to replay.
        seed: Of the random bytes.
    """

    def __init__(self, address: str, key: bytes, seed: int = 0) -> None:
        self._address = address
        self._key = key
        self._random = random.Random(seed)
        self._slow: deque[socket.socket] = deque()
        self._recorded: tuple[bytes, bytes] | None = None
        self.counts: Counter[str] = Counter()
        self.kinds: dict[str, Callable[[socket.socket], None]] = {
            "noise": self._noise,
            "half": self._half,
            "slow": self._keep,
            "wrong": lambda connected: self._shake(connected, os.urandom(32)),
            "replayed": self._replay,
            "http": lambda connected: connected.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
            "ucx": self._greet_ucx,
        }

    def call(self, kind: str, port: int) -> None:
        """One connection."""
        try:
            connected = socket.create_connection((self._address, port), timeout=_PATIENCE_SECONDS)
        except OSError as fault:
            self.counts[f"{kind}: not connected ({fault.strerror or fault})"] += 1
            return
        self.counts[f"{kind}: connected"] += 1
        with contextlib.suppress(OSError, ValueError):
            self.kinds[kind](connected)
        if connected not in self._slow:
            connected.close()

    def record(self, port: int) -> None:
        """Remembers what a member says in a good handshake."""
        with socket.create_connection((self._address, port), timeout=_PATIENCE_SECONDS) as connected:
            self._recorded = self._shake(connected, self._key)
            assert connected.recv(1), "the handshake to replay was not accepted"

    def _noise(self, connected: socket.socket) -> None:
        connected.sendall(self._random.randbytes(self._random.choice((1, 8, 60, 5000))))

    def _half(self, connected: socket.socket) -> None:
        connected.sendall((200).to_bytes(4) + b'{"paceline":')

    def _keep(self, connected: socket.socket) -> None:
        connected.sendall(b"\x00")
        self._slow.append(connected)
        if len(self._slow) > MAX_SLOW_AT_ONCE:
            self._slow.popleft().close()

    def _shake(self, connected: socket.socket, key: bytes) -> tuple[bytes, bytes]:
        initiator = Initiator(key, os.urandom(32))
        hello = frame(initiator.hello())
        connected.sendall(hello)
        splitter = FrameSplitter()
        connected.settimeout(0.2)
        while (challenge := splitter.next_body()) is None:
            data = connected.recv(4096)
            if not data:
                raise ValueError("no challenge")
            splitter.feed(data)
        insists = Proof(os.urandom(32))  # although the challenge shows that it has another key
        proof = frame(initiator.answer(challenge) if key == self._key else insists)
        connected.sendall(proof)
        return hello, proof

    def _replay(self, connected: socket.socket) -> None:
        assert self._recorded is not None
        hello, proof = self._recorded
        connected.sendall(hello + proof)
        connected.settimeout(0.2)
        connected.recv(4096)
        if connected.recv(4096):
            self.counts["replayed: ANSWERED"] += 1

    def _greet_ucx(self, connected: socket.socket) -> None:
        connected.sendall(_UCX_MAGIC.to_bytes(8, "little") + self._random.randbytes(64))


def main(address: str, key: bytes, num_connections: int, ports: list[int], kinds: list[str]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    strangers = Strangers(address, key)
    if "replayed" in kinds:
        strangers.record(ports[0])
    began = time.monotonic()
    turns = itertools.cycle([(kind, port) for kind in kinds for port in ports])
    for kind, port in itertools.islice(turns, num_connections):
        strangers.call(kind, port)
    print(json.dumps({"seconds": time.monotonic() - began, **strangers.counts}, indent=1))


if __name__ == "__main__":
    address, key, num_connections, kinds, *ports = sys.argv[1:]
    main(address, bytes.fromhex(key), int(num_connections), list(map(int, ports)), kinds.split(","))
