"""Connections in the loop, over a real socket pair and a clock that the test turns."""

import socket
from collections.abc import Iterator

import pytest

from paceline.rendezvous.connection import SILENCE_LIMIT_SECONDS, Connection
from paceline.wire.codec import Decoder
from paceline.wire.frames import frame
from turned_loop import TurnedLoop


class Heard:
    """A connection's owner: keeps what it is told."""

    def __init__(self, loop: TurnedLoop, end: socket.socket) -> None:
        self.objects: list[object] = []
        self.closed: list[str] = []
        self.connection = Connection(loop, end)
        self.connection.attach(Decoder(dict), self.objects.append, self.closed.append)


@pytest.fixture
def loop() -> Iterator[TurnedLoop]:
    loop = TurnedLoop()
    yield loop
    loop.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    with near, far:
        far.settimeout(5)
        yield near, far


def test_messages_arrive_in_order(loop, ends):
    near, far = ends
    heard = Heard(loop, near)
    far.sendall(frame({"a": 1}) + frame({"a": 2}))
    loop.turn()
    assert heard.objects == [{"a": 1}, {"a": 2}]


def test_the_end_of_the_peer_is_told_once(loop, ends):
    near, far = ends
    heard = Heard(loop, near)
    far.close()
    loop.turn()
    heard.connection.fail("again")
    assert heard.closed == ["the connection to it was closed"]


def test_nonsense_ends_the_connection(loop, ends):
    near, far = ends
    heard = Heard(loop, near)
    far.sendall(b"\x00\x00\x00\x02[]")
    loop.turn()
    assert "an invalid message" in heard.closed[0]


def test_what_is_sent_while_the_peer_does_not_read_arrives_later(loop, ends):
    near, far = ends
    heard = Heard(loop, near)
    sent = b""
    for number in range(200):
        message = {"number": number, "text": "x" * 50_000}
        heard.connection.send(message)
        sent += frame(message)
    received = b""
    while len(received) < len(sent):
        received += far.recv(1 << 20)
        loop.turn()
    assert received == sent


def test_a_peer_that_never_reads_is_given_up(loop, ends):
    near, _ = ends
    heard = Heard(loop, near)
    for _ in range(40):
        heard.connection.send({"text": "x" * 1_000_000})
    loop.turn()
    assert heard.closed == ["it does not read its messages"]


def test_silence_is_counted_from_the_last_word(loop, ends):
    near, far = ends
    heard = Heard(loop, near)
    loop.now = SILENCE_LIMIT_SECONDS - 1
    far.sendall(frame({}))
    loop.turn()
    loop.now += SILENCE_LIMIT_SECONDS
    assert not heard.connection.is_silent()
    loop.now += 0.1
    assert heard.connection.is_silent()


def test_a_callback_closes_a_connection_that_is_ready_in_the_same_round(loop):
    """A loop raised ValueError ("Invalid file descriptor: -1"), so an agent failed and killed its worker: when a group
    stood in the very moment in which the chief's look at the rank's own port arrived, too.
    """
    pairs = [socket.socketpair() for _ in range(2)]
    heard: list[Heard] = []
    closed: list[int] = []

    def close_the_other(number: int) -> None:
        closed.append(number)
        heard[1 - number].connection.close()

    for number, (near, far) in enumerate(pairs):
        one = Heard(loop, near)
        one.connection.attach(Decoder(dict), lambda _, number=number: close_the_other(number), one.closed.append)
        heard.append(one)
        far.sendall(frame({}))
    loop.turn(2)
    assert len(closed) == 1
    for one, (_, far) in zip(heard, pairs, strict=True):
        one.connection.close()
        far.close()
