"""How the arrays of one `all_reduce` lie in the windows, and the memory of its results: both used again by later calls.

A step of training reduces the same shapes thousands of times; what can be known beforehand (which piece goes where, and
the NumPy arrays that show the windows' memory there) is not worked out again.

A fresh array of some megabytes costs about as much in page faults as the sum that fills it. TensorFlow adopts
64-byte-aligned arrays without a copy and holds a reference as long as a tensor uses them; so a buffer whose reference
count says that only its pool (`OutputBuffers`) knows it is free. Results that a caller keeps are never taken back.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from paceline.comm.group import Array, Reduction, operation_of
from paceline.comm.window_meeting import mark_of

ALIGNMENT_BYTES = 64
"""Every piece starts on a cache line; it is also what TensorFlow asks of memory that it adopts without a copy."""

HALF_BYTES = 1 << 20
"""Bytes of one half of a rank's window; two halves alternate (`shared_memory.py`)."""
HEADER_BYTES = 64
ADDRESSES_BYTES = 8 << 10
"""Where a rank's arrays lie that the others read from its memory (`peer_memory.py`)."""
WINDOW_BYTES = 2 * (HALF_BYTES + HEADER_BYTES) + ADDRESSES_BYTES

_SHARED_OUT_FROM_RANKS = 4
_SHARED_OUT_FROM_ELEMENTS = 16_384
"""From here on it is faster that each rank combines a part and reads the rest (measured; memory bandwidth decides)."""

_READ_FROM_BYTES = 1 << 20
"""From here on in all it is faster to read the ranks' memory, which takes two more meetings than a round (measured)."""
_ARRAY_READ_FROM_BYTES = 64 << 10
_MOST_ARRAYS_READ = ADDRESSES_BYTES // 16


@dataclass(frozen=True, slots=True)
class Transfer:
    """A piece of an array, and where it lies in the windows."""

    index: int
    part: slice | EllipsisType
    """Which elements of the (flattened) array; all of an array that is neither cut nor shared out."""
    memory: tuple[tuple[Array, ...], tuple[Array, ...]]
    """For both halves, each rank's copy, shaped like the piece."""
    slices: tuple[slice, ...]
    """Which elements each rank combines for all; empty: each combines everything for itself."""


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """How calls with one signature travel."""

    mark: int
    operation: np.ufunc
    flattened: tuple[int, ...]
    """The arrays that travel flat."""
    is_shared_out: bool
    """Whether some transfers have slices, so that each round takes a second meeting."""
    rounds: tuple[tuple[Transfer, ...], ...]
    in_place: tuple[tuple[int, tuple[slice, ...]], ...]
    """The arrays that do not travel: which elements of the flattened array each rank combines for all."""


def plan_transfers(
    arrays: Sequence[Array],
    reduction: Reduction,
    halves: tuple[Sequence[Array], Sequence[Array]],
    *,
    can_read_memory: bool,
) -> TransferPlan:
    """The plan for calls with arrays of these shapes and dtypes.

    Args:
        arrays: Their values do not matter.
        reduction: The operation.
        halves: For both halves, each rank's `HALF_BYTES` bytes.
        can_read_memory: Whether each rank can read the others' memory.

    Raises:
        TypeError: the operation is not defined for a dtype.
    """
    operation = operation_of(reduction, arrays)
    num_ranks = len(halves[0])
    in_place = _read_from_memory(arrays) if can_read_memory and num_ranks > 1 else []
    flattened = set(in_place)
    rounds = []
    lengths = [(0 if index in flattened else array.size, array.itemsize) for index, array in enumerate(arrays)]
    for pieces in plan_rounds(lengths, HALF_BYTES):
        transfers = []
        for piece in pieces:
            array = arrays[piece.index]
            count = piece.stop - piece.start
            shared_out = num_ranks >= _SHARED_OUT_FROM_RANKS and count >= _SHARED_OUT_FROM_ELEMENTS
            as_it_is = count == array.size and not shared_out
            if not as_it_is:
                flattened.add(piece.index)
            place = slice(piece.offset, piece.offset + count * array.itemsize)
            shape = array.shape if as_it_is else (count,)
            first, second = (
                tuple(memory[place].view(array.dtype).reshape(shape) for memory in half) for half in halves
            )
            transfers.append(
                Transfer(
                    piece.index,
                    ... if as_it_is else slice(piece.start, piece.stop),
                    (first, second),
                    _slices(count, num_ranks) if shared_out else (),
                )
            )
        rounds.append(tuple(transfers))
    mark = mark_of("all_reduce", (reduction.value, [(array.shape, array.dtype.name) for array in arrays]))
    is_shared_out = any(transfer.slices for transfers in rounds for transfer in transfers)
    return TransferPlan(
        mark,
        operation,
        tuple(sorted(flattened)),
        is_shared_out,
        tuple(rounds),
        tuple((index, _slices(arrays[index].size, num_ranks)) for index in in_place),
    )


def _read_from_memory(arrays: Sequence[Array]) -> list[int]:
    """Which arrays the ranks read from each other's memory."""
    large = [index for index, array in enumerate(arrays) if array.nbytes >= _ARRAY_READ_FROM_BYTES][:_MOST_ARRAYS_READ]
    return large if sum(arrays[index].nbytes for index in large) >= _READ_FROM_BYTES else []


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements `start` to `stop` of array number `index`, at byte `offset` of the buffer."""

    index: int
    start: int
    stop: int
    offset: int


def aligned(count_bytes: int) -> int:
    """`count_bytes` rounded up to the alignment."""
    return -(-count_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_rounds(lengths: Sequence[tuple[int, int]], capacity_bytes: int) -> Iterator[list[Piece]]:
    """Cuts arrays into rounds of pieces that fit a buffer of `capacity_bytes`.

    Args:
        lengths: For each array its number of elements and the bytes of one.
        capacity_bytes: Size of the buffer, a multiple of the alignment.

    Yields:
        Non-empty rounds; every element of every array is in exactly one piece, in order.
    """
    round_: list[Piece] = []
    offset = 0
    for index, (count, item_bytes) in enumerate(lengths):
        start = 0
        while start < count:
            room = (capacity_bytes - offset) // item_bytes
            if room <= 0:
                yield round_
                round_, offset = [], 0
                continue
            stop = min(count, start + room)
            round_.append(Piece(index, start, stop, offset))
            offset += aligned((stop - start) * item_bytes)
            start = stop
    if round_:
        yield round_


def _slices(count: int, num_ranks: int) -> tuple[slice, ...]:
    return tuple(slice(count * rank // num_ranks, count * (rank + 1) // num_ranks) for rank in range(num_ranks))


_KEPT_BUFFERS = 4
_KEPT_SIZES = 16
_POOLED_FROM_BYTES = 128 << 10
"""Below, the system's allocator is as fast."""

_ONLY_LISTED = [object()]
_REFERENCES_WHEN_FREE = sys.getrefcount(_ONLY_LISTED[0])
"""The pool's list, and what this interpreter counts for the question itself."""


class OutputBuffers:
    """A pool of result memory for calls that repeat with the same shapes."""

    def __init__(self) -> None:
        self._free_or_used: dict[int, list[Array]] = {}

    def arrays_like(self, templates: Sequence[Array]) -> list[Array]:
        """Uninitialised C-ordered arrays with the templates' shapes and dtypes, each aligned, on one buffer."""
        total_bytes = sum([aligned(array.nbytes) for array in templates])
        if total_bytes < _POOLED_FROM_BYTES:
            return [np.empty(template.shape, template.dtype) for template in templates]
        buffer = self._take(total_bytes)
        results: list[Array] = []
        offset = 0
        for template in templates:
            view = buffer[offset : offset + template.nbytes].view(template.dtype).reshape(template.shape)
            results.append(view)
            offset += aligned(template.nbytes)
        return results

    def _take(self, total_bytes: int) -> Array:
        if total_bytes not in self._free_or_used and len(self._free_or_used) >= _KEPT_SIZES:
            self._free_or_used.clear()  # sizes that keep changing: memory in use lives on with its users
        pool = self._free_or_used.setdefault(total_bytes, [])
        for position in range(len(pool)):
            if sys.getrefcount(pool[position]) == _REFERENCES_WHEN_FREE:
                return pool[position]
        memory = np.empty(total_bytes + ALIGNMENT_BYTES, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT_BYTES
        # The views handed out must count on this very array: NumPy collapses chains of views to the array that owns
        # the memory, which is `memory`, so the pool keeps an array that owns nothing but is its own base.
        buffer = np.frombuffer(memory.data[start : start + total_bytes], np.uint8)
        if len(pool) < _KEPT_BUFFERS:
            pool.append(buffer)
        return buffer
