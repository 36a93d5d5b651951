"""All-reduce on one host: each rank writes into a window of shared memory that all the others can read.

MPICH's own all-reduce copies each byte several times through small cells; here every byte is written once by its
owner and read once by each reader (`benchmarks/all_reduce`). Two *halves* alternate, so that one barrier a round is
enough:

    round k   (half 0)   write own half 0 ─► barrier k   ─► read everybody's half 0
    round k+1 (half 1)   write own half 1 ─► barrier k+1 ─► read everybody's half 1
    round k+2 (half 0)   write own half 0 …  safe: whoever has passed barrier k+1 has read half 0 of round k

Beside its bytes each rank writes what it is doing (a sequence number and a checksum of the call's kind, shapes and
dtypes). Every reader compares them after the barrier, so ranks that met in different collectives learn it at once
instead of adding apples to pears.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.comm.arithmetic import combine
from paceline.comm.communicator import Array, Communicator, Reduction
from paceline.comm.output_buffers import OutputBuffers
from paceline.comm.rounds import HALF_BYTES, HEADER_BYTES, HEADER_WORDS, Piece, plan_rounds
from paceline.errors import DesynchronizedError

_SLICED_FROM_RANKS = 4
_SLICED_FROM_ELEMENTS = 16_384
_KEPT_PLANS = 64


@dataclass(frozen=True, slots=True)
class _Transfer:
    """A piece, and for both halves the memory of every rank where it lies."""

    piece: Piece
    memory: tuple[tuple[Array, ...], tuple[Array, ...]]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How calls with one signature travel; made once per signature."""

    checksum: int
    rounds: tuple[tuple[_Transfer, ...], ...]


class SharedMemoryCommunicator(Communicator):
    """A group of ranks on one host.

    Args:
        inner: Carries what does not go through the windows, and the barriers.
        windows: For each rank the `WINDOW_BYTES` bytes (uint8) that it may write and all may read.
    """

    def __init__(self, inner: Communicator, windows: Sequence[Array]) -> None:
        self._inner = inner
        self._rank = inner.rank
        self._size = inner.size
        self._halves = [
            tuple(window[half * HALF_BYTES : (half + 1) * HALF_BYTES] for window in windows)
            for half in (0, 1)
        ]
        # Memoryviews: reading and writing two numbers through them costs a fraction of what NumPy's scalars do.
        self._headers = [
            [window.data[start : start + HEADER_WORDS * 8].cast("q") for window in windows]
            for start in (2 * HALF_BYTES, 2 * HALF_BYTES + HEADER_BYTES)
        ]
        self._round = 0
        self._plans: dict[Any, _Plan] = {}
        self._outputs = OutputBuffers()
        self._checksums = {
            name: zlib.crc32(name.encode()) for name in ("all_gather", "broadcast", "barrier", "close")
        }

    @property
    def rank(self) -> int:
        """This process's number in the group."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks share this host's memory."""
        return self._size

    def all_reduce(self, arrays: Sequence[Array], reduction: Reduction = Reduction.SUM) -> list[Array]:
        """See `Communicator.all_reduce`."""
        plan = self._plan(arrays, reduction)
        results = self._outputs.arrays_like(arrays)
        sources = [array.reshape(-1) for array in arrays]
        targets = [result.reshape(-1) for result in results]
        if not plan.rounds:
            self._meet(plan.checksum)
        for transfers in plan.rounds:
            half = self._round & 1
            for transfer in transfers:
                piece = transfer.piece
                np.copyto(transfer.memory[half][self._rank], sources[piece.index][piece.start : piece.stop])
            self._meet(plan.checksum)
            if self._size >= _SLICED_FROM_RANKS:
                self._read_sliced(transfers, half, targets, reduction)
            else:
                for transfer in transfers:
                    piece = transfer.piece
                    combine(transfer.memory[half], reduction, targets[piece.index][piece.start : piece.stop])
        return results

    def _read_sliced(
        self, transfers: Sequence[_Transfer], half: int, targets: Sequence[Array], reduction: Reduction
    ) -> None:
        """Reads with work shared out: each rank combines its slice of a large piece, then all copy the slices."""
        large = [
            transfer
            for transfer in transfers
            if transfer.piece.stop - transfer.piece.start >= _SLICED_FROM_ELEMENTS
        ]
        for transfer in transfers:
            piece = transfer.piece
            target = targets[piece.index][piece.start : piece.stop]
            if transfer in large:
                mine = self._slice(piece, self._rank)
                combine([memory[mine] for memory in transfer.memory[half]], reduction, target[mine])
                np.copyto(transfer.memory[half][self._rank][mine], target[mine])
            else:
                combine(transfer.memory[half], reduction, target)
        if large:
            self._inner.barrier()
            for transfer in large:
                piece = transfer.piece
                target = targets[piece.index][piece.start : piece.stop]
                for rank, memory in enumerate(transfer.memory[half]):
                    if rank != self._rank:
                        theirs = self._slice(piece, rank)
                        np.copyto(target[theirs], memory[theirs])

    def _slice(self, piece: Piece, rank: int) -> slice:
        count = piece.stop - piece.start
        return slice(count * rank // self._size, count * (rank + 1) // self._size)

    def _plan(self, arrays: Sequence[Array], reduction: Reduction) -> _Plan:
        key = (reduction, *[(array.shape, array.dtype) for array in arrays])
        plan = self._plans.get(key)
        if plan is None:
            rounds = plan_rounds([(array.size, array.itemsize) for array in arrays], HALF_BYTES)
            transfers = tuple(tuple(self._transfer(piece, arrays) for piece in round_) for round_ in rounds)
            text = f"all_reduce {reduction.value} {[(array.shape, array.dtype.name) for array in arrays]}"
            plan = _Plan(zlib.crc32(text.encode()), transfers)
            if len(self._plans) >= _KEPT_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def _transfer(self, piece: Piece, arrays: Sequence[Array]) -> _Transfer:
        dtype = arrays[piece.index].dtype
        stop = piece.offset + (piece.stop - piece.start) * dtype.itemsize
        first, second = (
            tuple(memory[piece.offset : stop].view(dtype) for memory in half) for half in self._halves
        )
        return _Transfer(piece, (first, second))

    def _meet(self, checksum: int) -> None:
        """The barrier of a round, and the check that all ranks mean the same by it."""
        headers = self._headers[self._round & 1]
        mine = headers[self._rank]
        mine[0], mine[1] = self._round, checksum
        self._inner.barrier()
        self._round += 1
        for rank, theirs in enumerate(headers):
            if theirs != mine:
                raise DesynchronizedError(
                    f"rank {self._rank} and rank {rank} are in different collective calls (number {mine[0]} here, "
                    f"number {theirs[0]} there, {'other' if theirs[1] != checksum else 'the same'} kind or "
                    "shapes): they do not run the same program. Usual causes: a different model, data of another "
                    "length, or a condition on the rank around something that all ranks must do together."
                )

    def all_gather(self, array: Array) -> list[Array]:
        """See `Communicator.all_gather`."""
        self._meet(self._checksums["all_gather"])
        return self._inner.all_gather(array)

    def broadcast(self, arrays: Sequence[Array]) -> list[Array]:
        """See `Communicator.broadcast`."""
        self._meet(self._checksums["broadcast"])
        return self._inner.broadcast(arrays)

    def barrier(self) -> None:
        """See `Communicator.barrier`."""
        self._meet(self._checksums["barrier"])

    def close(self) -> None:
        """See `Communicator.close`."""
        self._inner.close()
