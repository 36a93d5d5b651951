"""What a worker that was started by hand says while ranks are missing, and when the time is over."""

import asyncio
from collections.abc import Callable

from paceline.launcher.workers.crew import one_line
from paceline.rendezvous.agent_messages import MissingRank, Waiting
from paceline.rendezvous.channel import Attach

FIRST_LINE_SECONDS = 2.0
LINE_INTERVAL_SECONDS = 10.0


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
        self._said: frozenset[int] = frozenset()
        """Who was missing when the last line was said."""
        self._timer = loop.call_later(FIRST_LINE_SECONDS, self._tell)

    def report(self, waiting: Waiting) -> None:
        """These are missing now."""
        self.state = waiting
        if self._said and not self._said.issuperset(one.rank for one in waiting.missing):
            self._timer.cancel()
            self._tell()

    def stop(self) -> None:
        """Nobody is awaited any more."""
        self._timer.cancel()

    def _tell(self) -> None:
        self._timer = self._loop.call_later(LINE_INTERVAL_SECONDS, self._tell)
        if self.state is not None:
            self._said = frozenset(one.rank for one in self.state.missing)
            self._say(waiting_line(self._attach.rank, len(self._attach.addresses), self.state))


def waiting_for_head(attach: Attach, reason: str, seconds_left: float) -> Waiting:
    """A rank waits for rank 0, without which nobody knows of the others."""
    return Waiting((MissingRank(0, str(attach.addresses[0]), reason),), 1, "", max(0.0, seconds_left))


def waiting_line(rank: int, world_size: int, waiting: Waiting) -> str:
    """The line that says whom `rank` waits for.

    >>> missing = (MissingRank(1, "a:2223", "name not found"),)
    >>> waiting_line(0, 2, Waiting(missing, 1, "", 290.4))
    'paceline: rank 0 waits for 1 of 2: rank 1 at a:2223 (name not found) - 290 s left'
    """
    named = ", ".join(f"rank {one.rank} at {one.address} ({one.reason})" for one in waiting.missing)
    note = f" ({waiting.note})" if waiting.note else ""
    return one_line(
        f"paceline: rank {rank} waits for {waiting.num_missing} of {world_size}: {named}{_more(waiting)}"
        f" - {waiting.seconds_left:.0f} s left{note}"
    )


def timeout_message(attach: Attach, waiting: Waiting, first: int | None = None) -> str:
    """Why the rank of `attach` gives up, with each missing rank, its address and the reason; `first` is the rank whose
    start timeout was over first, if it is another one.
    """
    from paceline.cluster.job_options import START_TIMEOUT  # the start of an agent does without the table of options

    named = "".join(f"\n  rank {one.rank} at {one.address}: {one_line(one.reason)}" for one in waiting.missing)
    note = f"\n({one_line(waiting.note)}.)" if waiting.note else ""
    limit = f"start timeout of rank {attach.rank}: {attach.start_timeout_seconds:g} s"
    if first not in (None, attach.rank):
        limit = f"the start timeout of rank {first} was over first"
    return (
        f"the group did not form in time ({limit}); "
        f"{waiting.num_missing} of {len(attach.addresses)} ranks did not come:{named}{_more(waiting)}{note}\n"
        "Start every rank with the same `cluster` in TF_CONFIG and its own `task`; "
        f"{START_TIMEOUT} sets how many seconds to wait. [start-timeout]"
    )


def _more(waiting: Waiting) -> str:
    unnamed = waiting.num_missing - len(waiting.missing)
    return f" and {unnamed} more" if unnamed > 0 else ""
