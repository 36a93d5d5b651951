"""What a worker that was started by hand says while ranks are missing, and when the time is over."""

import asyncio
from collections.abc import Callable

from paceline.rendezvous.agent_messages import Missing, Waiting
from paceline.rendezvous.channel import Attach
from paceline.rendezvous.waiting import FIRST_LINE_SECONDS, LINE_INTERVAL_SECONDS, late_message, waiting_line


class WaitingLines:
    """Says from time to time who is missing, until `stop`; at once, where a rank is that had been there.

    Args:
        loop: The running event loop.
        attach: Who waits.
        say: Prints a line.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, attach: Attach, say: Callable[[str], None]) -> None:
        self._loop = loop
        self._attach = attach
        self._say = say
        self.state: Waiting | None = None
        """As of now."""
        self._said: frozenset[str] = frozenset()
        """Who was missing when the last line was said."""
        self._timer = loop.call_later(FIRST_LINE_SECONDS, self._tell)

    def report(self, waiting: Waiting) -> None:
        """These are missing now."""
        self.state = waiting
        if self._said and not self._said.issuperset(one.name for one in waiting.missing):
            self._timer.cancel()
            self._tell()

    def stop(self) -> None:
        """Nobody is awaited any more."""
        self._timer.cancel()

    def _tell(self) -> None:
        self._timer = self._loop.call_later(LINE_INTERVAL_SECONDS, self._tell)
        if self.state is not None:
            self._said = frozenset(one.name for one in self.state.missing)
            self._say(waiting_line(f"rank {self._attach.rank}", len(self._attach.addresses), self.state))


def waiting_for_head(attach: Attach, reason: str, seconds_left: float) -> Waiting:
    """A rank waits for rank 0, without which nobody knows of the others."""
    return Waiting((Missing("rank 0", str(attach.addresses[0]), reason),), 1, "", max(0.0, seconds_left))


def timeout_message(attach: Attach, waiting: Waiting, first: int | None = None) -> str:
    """Why the rank of `attach` gives up; `first` is the rank whose start timeout was over first, if another one's."""
    limit = f"start timeout of rank {attach.rank}: {attach.start_timeout_seconds:g} s"
    if first not in (None, attach.rank):
        limit = f"the start timeout of rank {first} was over first"
    return f"{late_message('rank', len(attach.addresses), waiting, limit)} [start-timeout]"
