"""The barrier of ranks that share memory, and the check that all mean the same by it.

Beside its bytes each rank writes a *header*: the number of the round and a *mark* of the call it is in (its kind, and a
checksum of shapes and dtypes). Everybody compares them after the barrier, so ranks that met in different calls learn it
at once instead of adding apples to pears.

    rank 0   write header ─► barrier ─► headers alike? ─┬─ yes ─► go on
    rank 1   write header ─► barrier ─► headers alike? ─┴─ no ──► DesynchronizedError, on every rank

Headers alternate between two places like the halves of the window: who writes one again has passed the next barrier, so
all others have read it.
"""

import time
import zlib
from collections.abc import Callable, Sequence

from paceline.errors import DesynchronizedError

_KINDS = ("all_reduce", "all_gather", "broadcast", "barrier", "close")
_KIND_SHIFT = 32
_FIRST_ROUND = 2
"""Even, so that it uses the first half; not 0, which a fresh window holds."""
_POLL_SECONDS = 0.005


def mark_of(kind: str, signature: object = None) -> int:
    """A number that stands for a call of this kind and signature; equal on all ranks that make the same call.

    Args:
        kind: A method of `Communicator`.
        signature: What must agree over ranks; its `repr` is what counts.
    """
    return _KINDS.index(kind) << _KIND_SHIFT | zlib.crc32(repr(signature).encode())


class WindowMeeting:
    """One rank's end of the barriers of a group on one host.

    Args:
        rank: This rank.
        headers: For both halves, each rank's header: two 64-bit integers, written by that rank, read by all.
        barrier: Returns when all ranks have called it; makes what they wrote before visible to all.
    """

    def __init__(
        self,
        rank: int,
        headers: tuple[Sequence["memoryview[int]"], Sequence["memoryview[int]"]],
        barrier: Callable[[], None],
    ) -> None:
        self._rank = rank
        self._headers = headers
        self._barrier = barrier
        self._round = _FIRST_ROUND

    @property
    def half(self) -> int:
        """Which half of the windows the next round uses, 0 or 1."""
        return self._round & 1

    def meet(self, mark: int) -> None:
        """Meets the others in the call that `mark` stands for. Collective, blocks.

        Raises:
            DesynchronizedError: some rank is in another call.
        """
        headers = self._headers[self._round & 1]
        mine = headers[self._rank]
        mine[0] = self._round
        mine[1] = mark
        self._barrier()
        self._round += 1
        for theirs in headers:
            if theirs != mine:
                raise self._desynchronized(headers, mark)

    def meet_idly(self, mark: int) -> None:
        """As `meet`, but leaves the core to the others while they are not there yet."""
        headers = self._headers[self._round & 1]
        mine = headers[self._rank]
        mine[0] = self._round
        mine[1] = mark
        while any(theirs[0] != self._round for theirs in headers):
            time.sleep(_POLL_SECONDS)
        self.meet(mark)

    def _desynchronized(self, headers: Sequence["memoryview[int]"], mark: int) -> DesynchronizedError:
        here = _KINDS[mark >> _KIND_SHIFT]
        rank, theirs = next((rank, header[1]) for rank, header in enumerate(headers) if header[1] != mark)
        there = _KINDS[theirs >> _KIND_SHIFT]
        difference = "with other shapes, dtypes or another reduction" if here == there else f"in {_words(there)}"
        return DesynchronizedError(
            f"rank {self._rank} is in {_words(here)}, rank {rank} {difference}: they do not run the same program. "
            "Usual causes: a different model, data of another length, or a condition on the rank around something "
            "that all ranks must do together."
        )


def _words(kind: str) -> str:
    return "its exit (the script has come to its end)" if kind == "close" else kind
