"""The barrier of ranks that share memory, and the check that all mean the same by it.

Each rank has a *header* in its window: a *mark* of the call it is in (its kind, and a checksum of shapes and dtypes),
and the number of the meeting that it has come to. Who sees that all have come compares the marks, so ranks that met in
different calls learn it at once instead of adding apples to pears.

    rank 0   write bytes, mark ─ fence ─► write number ─► all numbers there? ─ fence ─► marks alike? ─► read bytes
    rank 1   write bytes, mark ─ fence ─► write number ─► all numbers there? ─ fence ─► marks alike? ─► read bytes

Two headers alternate: who writes one again has passed the next meeting, so all others have read it.

Waiting: MPI's blocking calls spin. When there are more runnable processes than cores (more workers than cores, a
container's quota, anybody else on the machine), the one that spins takes the core from the one that it waits for: an
all-reduce of 1 MB by 3 ranks on 2 cores takes 1.8 s instead of 4 ms. A wait that asks, and steps aside between
questions (`wait_until`), costs one microsecond more where every rank has its own core, lets the threads that prepare
the next batch run on it, and can be interrupted with Ctrl-C.
"""

import os
import time
import zlib
from collections.abc import Callable, Sequence

from paceline.errors import DesynchronizedError

_EAGER_QUESTIONS = 100
"""Asked back to back (about 20 microseconds): a peer that is just as fast is there by then."""
_YIELDING_QUESTIONS = 2_000
"""Asked with the core offered to others in between (about a millisecond)."""
_NAP_SECONDS = 50e-6
"""From then on: enough for other threads to have the interpreter, too; little beside what was waited already."""

_step_aside: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


def wait_until(is_done: Callable[[], bool]) -> None:
    """Returns once `is_done` answers true."""
    for _ in range(_EAGER_QUESTIONS):
        if is_done():
            return
    for _ in range(_YIELDING_QUESTIONS):
        if is_done():
            return
        _step_aside()
    while not is_done():
        time.sleep(_NAP_SECONDS)


Header = memoryview
"""Two 64-bit integers: number, mark. Memoryviews are read and written in a fraction of the time of NumPy's scalars."""

_NUMBER, _MARK = 0, 1
_KINDS = ("all_reduce", "all_gather", "broadcast", "barrier", "split", "close")
_KIND_SHIFT = 32
_IDLE_SECONDS = 0.005


def mark_of(kind: str, signature: object = None) -> int:
    """A number that stands for a call of this kind and signature; equal on all ranks that make the same call.

    Args:
        kind: A method of `Group`.
        signature: What must agree over ranks; its `repr` is what counts.
    """
    return _KINDS.index(kind) << _KIND_SHIFT | zlib.crc32(repr(signature).encode())


class WindowMeeting:
    """One rank's end of the meetings of a group on one host.

    Args:
        rank: This rank.
        headers: Two headers of each rank, in rank order; each is written by its rank and read by all. Zeros at first.
        fence: Orders this process's reads and writes of the windows before it and after it.
        progress: Called while waiting, so that what this rank has sent by other means reaches the others.
        lines: Every rank's line of the script, when all have met in different calls: collective.
    """

    def __init__(
        self,
        rank: int,
        headers: tuple[Sequence[Header], Sequence[Header]],
        fence: Callable[[], None],
        progress: Callable[[], object],
        lines: Callable[[], str],
    ) -> None:
        self._lines = lines
        self._rank = rank
        self._headers = headers
        self._fence = fence
        self._progress = progress
        self._number = 0

    def meet(self, mark: int) -> None:
        """Meets the others in the call that `mark` stands for. Collective, blocks.

        Raises:
            DesynchronizedError: some rank is in another call; raised on every rank.
        """
        headers = self._arrive(mark)
        for rank, theirs in enumerate(headers):
            if theirs[_NUMBER] != self._number:
                wait_until(lambda: self._has_arrived(rank))  # noqa: B023  # called before the next turn
        self._compare(headers, mark)

    def meet_idly(self, mark: int) -> None:
        """As `meet`, but sleeps while somebody is missing: for waits of any length, where milliseconds are nothing."""
        headers = self._arrive(mark)
        while not all(self._has_arrived(rank) for rank in range(len(headers))):
            time.sleep(_IDLE_SECONDS)
        self._compare(headers, mark)

    def _arrive(self, mark: int) -> Sequence[Header]:
        self._number += 1
        headers = self._headers[self._number & 1]
        mine = headers[self._rank]
        mine[_MARK] = mark
        self._fence()
        mine[_NUMBER] = self._number
        return headers

    def _has_arrived(self, rank: int) -> bool:
        if self._headers[self._number & 1][rank][_NUMBER] == self._number:
            return True
        self._progress()  # only while somebody is missing: it takes longer than the question
        return False

    def _compare(self, headers: Sequence[Header], mark: int) -> None:
        self._fence()
        for rank, theirs in enumerate(headers):
            if theirs[_MARK] != mark:
                difference = self._difference(mark, rank, theirs[_MARK])
                # All ranks are here: if one has another mark, everybody sees a mark that is not its own.
                raise DesynchronizedError(f"{difference} {self._lines()} [collectives-differ]")

    def _difference(self, mark: int, rank: int, their_mark: int) -> str:
        here, there = _KINDS[mark >> _KIND_SHIFT], _KINDS[their_mark >> _KIND_SHIFT]
        theirs = (
            "in the same call with other shapes, dtypes or another reduction"
            if here == there
            else f"in {_words(there)}"
        )
        return (
            f"rank {self._rank} is in {_words(here)}, but rank {rank} is {theirs}: the ranks do not make the "
            "same calls. Usual causes: a different model, data of different length, or a condition on the rank "
            "around a call that all ranks must make together."
        )


def _words(kind: str) -> str:
    return "its exit (its script has come to the end)" if kind == "close" else kind
