"""The line between head and agent, over a socket pair inside a loop of its own."""

import socket
from collections.abc import Iterator

import pytest

from paceline.launcher.hosts.link import Link
from paceline.rendezvous.agent_messages import Kill, Message, Over, Tell
from paceline.rendezvous.clocks import Measured
from paceline.rendezvous.connection import SILENCE_LIMIT_SECONDS, Connection
from paceline.wire.frames import frame
from turned_loop import TurnedLoop


class Ends:
    """Two ends in one loop; what each has heard, and why it ended."""

    def __init__(self) -> None:
        self.loop = TurnedLoop()
        self.sockets = socket.socketpair()
        self.heard: list[Message] = []
        self.lost: list[str] = []
        self.ours, self.theirs = (Link(self.loop, Connection(self.loop, end)) for end in self.sockets)

    def start(self) -> None:
        self.ours.start(self.heard.append, self.lost.append)
        self.theirs.start(lambda _: None, lambda _: None)

    def turn(self, times: int = 4) -> None:
        self.loop.turn(times)

    def pass_time(self, seconds: float) -> None:
        self.loop.now += seconds
        self.turn()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    for end in (made.ours, made.theirs):
        end.close()
    made.loop.close()


def test_messages_arrive_in_order_and_heartbeats_do_not_show(ends: Ends):
    ends.start()
    ends.theirs.send(Kill())
    ends.theirs.send(Tell(("a", "b")))
    ends.turn()
    assert ends.heard == [Kill(), Tell(("a", "b"))]


def test_an_end_that_is_closed_is_told_once(ends: Ends):
    ends.start()
    ends.sockets[1].shutdown(socket.SHUT_RDWR)
    ends.turn()
    assert ends.lost == ["is gone: the connection to it was closed"]
    assert not ends.ours.is_open
    ends.ours.send(Kill())
    ends.ours.fail("again")
    assert len(ends.lost) == 1


def test_a_line_that_was_lost_between_two_stages_is_told_to_the_next_one(ends: Ends):
    """Found in review: a host that vanished between its first word and its first order was waited for without end."""
    ends.start()
    ends.sockets[1].shutdown(socket.SHUT_RDWR)
    ends.turn()
    told: list[str] = []
    ends.ours.attach(ends.heard.append, told.append)
    assert told == ends.lost == ["is gone: the connection to it was closed"]


def test_silence_ends_the_line_in_time(ends: Ends):
    ends.ours.start(ends.heard.append, ends.lost.append)  # the other end never says anything
    for _ in range(int(SILENCE_LIMIT_SECONDS) + 3):
        ends.pass_time(1.0)
    assert ends.lost == ["is gone: no message from it for 10 s"]


def test_an_end_that_is_held_up_keeps_the_line_and_does_not_blame_the_other(ends: Ends):
    lost: list[str] = []
    ends.ours.start(ends.heard.append, ends.lost.append)
    ends.theirs.start(lambda _: None, lost.append)
    for _ in range(30):
        ends.loop.now += 1.0
        ends.ours.show_life()
        ends.theirs.show_life()
    ends.turn()
    assert ends.lost == lost == []


def test_heartbeats_keep_a_quiet_line(ends: Ends):
    ends.start()
    for _ in range(100):
        ends.pass_time(1.0)
    assert ends.lost == []


def test_a_pause_of_this_end_is_not_the_others_silence(ends: Ends):
    ends.ours.start(ends.heard.append, ends.lost.append)
    ends.sockets[1].send(frame({"type": "Heartbeat"}))
    ends.loop.now += 1000.0  # this process stood still; what came meanwhile is read before anyone is called silent
    ends.turn()
    assert ends.lost == []


def test_nonsense_ends_the_line_with_the_reason(ends: Ends):
    ends.start()
    ends.sockets[1].send(frame({"type": "Unknown"}))
    ends.turn()
    assert "sent an invalid message" in ends.lost[0]


def test_what_is_sent_last_arrives(ends: Ends):
    ends.start()
    ends.theirs.send(Over(3))
    ends.ours.send(Over(4))
    ends.turn()
    assert ends.heard == [Over(3)]


def test_the_last_words_of_what_carries_the_line_complete_the_reason():
    loop = TurnedLoop()
    ours, theirs = socket.socketpair()
    link = Link(loop, Connection(loop, ours), lambda beginning: f"{beginning}MemoryError")
    lost: list[str] = []
    link.start(lambda _: None, lost.append)
    loop.turn()
    theirs.recv(4096)
    theirs.close()
    loop.turn()
    assert lost == ["is gone: the connection to it was closed; its last output: MemoryError"]
    loop.close()


def test_heartbeats_measure_the_other_ends_clock(ends: Ends):
    measured: list[Measured | None] = []
    ends.ours.on_clock = lambda: measured.append(ends.ours.clock.take())
    ends.start()
    for _ in range(6):
        ends.pass_time(1.0)
    assert measured
    assert measured[0] is not None
    assert abs(measured[0].offset) <= measured[0].error, "both ends are in this process"
    assert ends.heard == []
