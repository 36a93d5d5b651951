"""Strangers at the port of a running job: random bytes, half messages, slow senders, wrong keys, replays. None gets in,
none disturbs, and they cost little.

PACELINE_TEST_STRANGERS sets how many there are.
"""

import contextlib
import itertools
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from tests.launcher.conftest import Job, wait_until

from paceline.cli.host_options import nodes_of
from paceline.cluster.spec import Address
from paceline.rendezvous.agent_messages import Over
from paceline.rendezvous.dialing import OTHER_JOB, UnreachableError, dial
from paceline.rendezvous.listener import MAX_STRANGERS
from paceline.wire.frames import FrameSplitter, frame
from paceline.wire.handshake import NONCE_BYTES, Initiator

pytestmark = pytest.mark.processes

NUM_STRANGERS = int(os.environ.get("PACELINE_TEST_STRANGERS", "2000"))
MAX_GROWTH_BYTES = 20 << 20
NUM_SLOW = 256
"""Connections that are kept open at a time; more than the port keeps."""

WORK = """
import os, time
rank = os.environ["PACELINE_RANK"]
open(f"up_{rank}", "w").write("up\\n")
while not os.path.exists("end"):
    print("still here")
    time.sleep(0.05)
print("done", rank)
"""


class Attack:
    """Makes connections to a job's port.

    Args:
        port: The port.
        recorded: What a process of the job once sent in its handshake, and after it.
    """

    def __init__(self, port: int, recorded: bytes) -> None:
        self._address = Address("127.0.0.1", port)
        self._recorded = recorded
        self._random = random.Random(7)
        self._slow: list[socket.socket] = []
        self._over = threading.Event()
        self.answers: set[str] = set()

    def kinds(self) -> Iterator[Callable[[], None]]:
        return itertools.cycle(
            (self.noise, self.half, self.slow, self.wrong_key, self.replay, self.long, self.silent, self.other_program)
        )

    def _send(self, data: bytes) -> socket.socket:
        connected = socket.create_connection((self._address.host, self._address.port), timeout=60)
        with contextlib.suppress(OSError):  # it may have been closed already
            connected.sendall(data)
        return connected

    def noise(self) -> None:
        self._send(self._random.randbytes(self._random.randint(1, 4000))).close()

    def half(self) -> None:
        self._send(self._recorded[: self._random.randint(1, len(self._recorded) - 1)]).close()

    def slow(self) -> None:
        self._slow.append(self._send(self._recorded[:2]))
        if len(self._slow) > NUM_SLOW:
            self._slow.pop(0).close()
        with contextlib.suppress(OSError):
            self._random.choice(self._slow).send(self._recorded[2:3])

    def silent(self) -> None:
        self._slow.append(self._send(b""))

    def wrong_key(self) -> None:
        try:
            dial(self._address, b"another key", 60.0).connected.close()
        except UnreachableError as fault:
            self.answers.add(fault.reason)

    def replay(self) -> None:
        with self._send(self._recorded) as connected, contextlib.suppress(OSError):
            while connected.recv(4096):  # its challenge, and then the end
                pass

    def long(self) -> None:
        self._send((1 << 31).to_bytes(4) + b"x" * 1000).close()

    def other_program(self) -> None:
        self._send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").close()

    def go_on(self) -> None:
        """Attacks until it is closed."""
        for kind in self.kinds():
            if self._over.is_set():
                return
            with contextlib.suppress(OSError):  # the job has ended
                kind()

    def close(self) -> None:
        self._over.set()
        for connected in self._slow:
            connected.close()


def recorded_conversation(port: int, key: bytes) -> bytes:
    """The bytes of a handshake that succeeds, and of a message behind it, as an eavesdropper would keep them."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connected:
        splitter, initiator = FrameSplitter(), Initiator(key, os.urandom(NONCE_BYTES))
        sent = frame(initiator.hello())
        connected.sendall(sent)
        while (challenge := splitter.next_body()) is None:
            splitter.feed(connected.recv(4096))
        proof = frame(initiator.answer(challenge))
        connected.sendall(proof)
        return sent + proof + frame(Over(0), initiator.seal())


@pytest.mark.slow
def test_strangers_change_nothing_and_cost_little(paceline_run: Callable[..., Job], free_port: int, capsys):
    address = f"127.0.0.1:{free_port}"
    head, node = (
        paceline_run(WORK, "--nnodes", "2", "--node-rank", str(rank), "--rendezvous", address) for rank in (0, 1)
    )
    for rank in (0, 1):
        head.wait_for_file(f"up_{rank}")
    nodes = nodes_of(2, 1, address, {})
    assert nodes is not None
    attack = Attack(free_port, recorded_conversation(free_port, nodes.key))
    process = psutil.Process(head.process.pid)
    before_bytes, before_descriptors = process.memory_info().rss, process.num_fds()
    most_bytes = most_descriptors = 0
    began = time.monotonic()
    for number, kind in enumerate(itertools.islice(attack.kinds(), NUM_STRANGERS)):
        kind()
        if number % 50 == 0:
            most_bytes = max(most_bytes, process.memory_info().rss)
            most_descriptors = max(most_descriptors, process.num_fds())
    seconds = time.monotonic() - began
    (head.folder / "end").touch()
    finished = [job.finish() for job in (head, node)]
    attack.close()
    growth_bytes, num_descriptors = most_bytes - before_bytes, most_descriptors - before_descriptors
    with capsys.disabled():
        print(
            f"\n{NUM_STRANGERS} strangers in {seconds:.1f} s: node 0 grew by {growth_bytes / 2**20:.1f} MB "
            f"and had at most {num_descriptors} descriptors more"
        )
    assert [one.code for one in finished] == [0, 0], finished[0].stderr
    assert [one.stdout.splitlines()[-1].split("] ")[1] for one in finished] == ["done 0", "done 1"]
    assert attack.answers <= {OTHER_JOB, "the port is taken by another program"}  # the second: when it was evicted
    assert OTHER_JOB in attack.answers
    assert len(finished[0].told) == 1  # no line about any of them
    assert num_descriptors <= MAX_STRANGERS + 8
    assert growth_bytes < MAX_GROWTH_BYTES
    assert all(job.is_gone() for job in (head, node))


def test_a_late_node_gets_in_among_strangers(paceline_run: Callable[..., Job], free_port: int):
    address = f"127.0.0.1:{free_port}"

    def start(rank: int) -> Job:
        return paceline_run("print('hello')", "--nnodes", "2", "--node-rank", str(rank), "--rendezvous", address)

    head = start(0)
    assert wait_until(lambda: _listens(free_port))
    attack = Attack(free_port, b"\0\0\0\x20{}")
    attacker = threading.Thread(target=attack.go_on)
    attacker.start()
    try:
        finished = [job.finish() for job in (start(1), head)]
    finally:
        attack.close()
        attacker.join(60)
    assert [one.code for one in finished] == [0, 0], finished[1].stderr


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
