"""How far the clock of a host at the other end of a line is from this one's, by heartbeats. Pure, but for the clock.

    here     sent ─────────╲               ╱──► now          round trip = (now − sent) − held
    there                   came ── held ─ sent              there − here = there's `sent` + round trip / 2 − now

Which of the two ways took longer nobody knows, so half of the round trip is the error. Of some heartbeats the one with
the smallest round trip counts: the others have waited, for a core or for the network.

Clocks are those that count from the start of a machine: nobody sets them. They run at rates that differ by some
millionths, so a line is measured again and again, more and more rarely.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from paceline.rendezvous.agent_messages import Heartbeat

_FIRST_INTERVAL_NS = 10_000_000_000
_INTERVALS = 50
"""A measurement is due after so large a part of the time so far: a month has some hundred."""


class Measured(NamedTuple):
    """One measurement, in nanoseconds."""

    at: int
    """This end's clock."""
    offset: int
    """How far the other end's is ahead."""
    error: int
    """By how much `offset` may be wrong."""


class PeerClock:
    """The clock at the other end of one line.

    Args:
        now: Nanoseconds of this end's clock.
    """

    def __init__(self, now: Callable[[], int] = time.monotonic_ns) -> None:
        self._now = now
        self._began_at = now()
        self._taken_at: int | None = None
        self._heard: tuple[int, int] | None = None
        """What the other end's last heartbeat says, and when it came."""
        self._quickest: Measured | None = None

    def heartbeat(self) -> Heartbeat:
        """The one to send now."""
        now = self._now()
        if self._heard is None:
            return Heartbeat(now)
        sent, came = self._heard
        return Heartbeat(now, sent, now - came)

    def hear(self, heartbeat: Heartbeat) -> None:
        """One has come."""
        now = self._now()
        self._heard = (heartbeat.sent_ns, now)
        if heartbeat.echo_ns:
            trip = max(now - heartbeat.echo_ns - heartbeat.held_ns, 0)
            found = Measured(now, heartbeat.sent_ns + trip // 2 - now, trip // 2 + 1)
            if self._quickest is None or found.error < self._quickest.error:
                self._quickest = found

    @property
    def is_due(self) -> bool:
        """Whether there is a measurement, and it is time to take it."""
        if self._quickest is None or self._taken_at is None:
            return self._quickest is not None
        now = self._now()
        return now - self._taken_at >= max(_FIRST_INTERVAL_NS, (now - self._began_at) // _INTERVALS)

    def take(self) -> Measured | None:
        """The quickest since the last time; None: there was none."""
        quickest, self._quickest = self._quickest, None
        if quickest is not None:
            self._taken_at = self._now()
        return quickest
