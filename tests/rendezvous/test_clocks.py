"""The clock of another host, by heartbeats that take their time."""

import random

import pytest

from paceline.rendezvous.clocks import PeerClock

SECOND = 1_000_000_000


@pytest.mark.parametrize("ahead", [0, 3 * SECOND, -3 * SECOND])
def test_a_clock_is_found_within_the_error_that_is_stated(ahead: int) -> None:
    now = [10 * SECOND]
    here, there = PeerClock(lambda: now[0]), PeerClock(lambda: now[0] + ahead)
    chance = random.Random(1)

    def send(sender: PeerClock, receiver: PeerClock) -> None:
        heartbeat = sender.heartbeat()
        now[0] += chance.randint(100_000, 5_000_000)  # a way that takes as long as it likes
        receiver.hear(heartbeat)

    assert not here.is_due
    errors = []
    for _ in range(30):
        send(here, there)
        now[0] += 2 * SECOND
        send(there, here)
        if here.is_due:
            measured = here.take()
            assert measured is not None
            assert abs(measured.offset - ahead) <= measured.error
            errors.append(measured.error)
    assert 3 <= len(errors) <= 8, "the first one at once, then each ten seconds"
    assert min(errors) < 3_000_000


def test_a_heartbeat_that_has_waited_does_not_count_beside_a_quick_one() -> None:
    now = [SECOND]
    here, there = PeerClock(lambda: now[0]), PeerClock(lambda: now[0] + 5 * SECOND)
    for way in (1_000_000_000, 1_000_000, 2_000_000_000):
        there.hear(here.heartbeat())
        heartbeat = there.heartbeat()
        now[0] += way
        here.hear(heartbeat)
    measured = here.take()
    assert measured is not None
    assert measured.error == 500_001
    assert here.take() is None
