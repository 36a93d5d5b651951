"""All-reduce on one host: each rank writes into a window of shared memory that all the others can read.

MPICH's own all-reduce copies each byte several times through small cells; here every byte is written once by its
owner and read once by each reader (`benchmarks/all_reduce`). Two *halves* alternate, so that one barrier a round is
enough:

    round k   (half 0)   write own half 0 ─► barrier k   ─► read everybody's half 0
    round k+1 (half 1)   write own half 1 ─► barrier k+1 ─► read everybody's half 1
    round k+2 (half 0)   write own half 0 …  safe: whoever has passed barrier k+1 has read half 0 of round k

The barriers are `window_meeting.py`'s, in the windows as well. From four ranks on, large pieces are *shared out*: each
rank combines one slice for all (nobody else reads its slice of anybody's half), which takes a second barrier.

    write own half ─► barrier ─► combine my slice, write it into my half ─► barrier ─► read the others' slices

Where ranks can read each other's memory (`peer_memory.py`), only small arrays take this way.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.comm.group import Array, Group, Reduction, Request, combine
from paceline.comm.peer_memory import PeerMemory
from paceline.comm.script_lines import lines_of_ranks
from paceline.comm.transfers import (
    ADDRESSES_BYTES,
    HALF_BYTES,
    HEADER_BYTES,
    WINDOW_BYTES,
    OutputBuffers,
    Transfer,
    TransferPlan,
    plan_transfers,
)
from paceline.comm.window_meeting import WindowMeeting, mark_of
from paceline.errors import DesynchronizedError

_KEPT_PLANS = 64


class SharedMemoryGroup(Group):
    """A group of ranks on one host.

    Args:
        inner: Carries what does not go through the windows.
        windows: For each rank the `WINDOW_BYTES` bytes (uint8) that it may write and all may read; zeros at first.
        fence: Orders this process's reads and writes of the windows before it and after it.
        progress: Called while waiting, so that what `inner` has sent reaches the others.
        free: Gives the windows back at the end. Collective.
        peers: Reads the other ranks' memory; None: not all ranks can.
    """

    def __init__(
        self,
        inner: Group,
        windows: Sequence[Array],
        fence: Callable[[], None],
        progress: Callable[[], object],
        free: Callable[[], None],
        peers: PeerMemory | None = None,
    ) -> None:
        self._inner = inner
        self._peers = peers
        self._free = free
        self._rank = inner.rank
        self._size = inner.size
        self._halves = (
            [window[:HALF_BYTES] for window in windows],
            [window[HALF_BYTES : 2 * HALF_BYTES] for window in windows],
        )
        self._half = 0
        first, second = (
            [memoryview(window.data)[start : start + HEADER_BYTES].cast("q") for window in windows]
            for start in (2 * HALF_BYTES, 2 * HALF_BYTES + HEADER_BYTES)
        )
        self._addresses = [window[WINDOW_BYTES - ADDRESSES_BYTES :].view(np.int64).reshape(-1, 2) for window in windows]
        self._meeting = WindowMeeting(inner.rank, (first, second), fence, progress, lambda: lines_of_ranks(self))
        self._plans: dict[Any, TransferPlan] = {}
        self._outputs = OutputBuffers()
        self._barrier_mark, self._split_mark = mark_of("barrier"), mark_of("split")

    @property
    def rank(self) -> int:
        """This process's number in the group."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks share this host's memory."""
        return self._size

    def all_reduce(self, arrays: Sequence[Array], reduction: Reduction = Reduction.SUM) -> list[Array]:
        """See `Group.all_reduce`."""
        plan = self._plan(arrays, reduction)
        results = self._outputs.arrays_like(arrays)
        sources, targets = list(arrays), list(results)
        for index in plan.flattened:
            sources[index] = sources[index].reshape(-1)
            targets[index] = targets[index].reshape(-1)
        for place, (index, _) in enumerate(plan.in_place):
            sources[index] = np.ascontiguousarray(sources[index])
            self._addresses[self._rank][place] = sources[index].ctypes.data, targets[index].ctypes.data
        if not plan.rounds:
            self._meet(plan.mark)
        for transfers in plan.rounds:
            half = self._half
            self._half = 1 - half
            for transfer in transfers:
                transfer.memory[half][self._rank][...] = sources[transfer.index][transfer.part]
            self._meet(plan.mark)
            for transfer in transfers:
                target = targets[transfer.index][transfer.part]
                if transfer.slices:
                    self._combine_my_slice(transfer, half, plan, target)
                else:
                    combine(transfer.memory[half], plan.operation, target)
            if plan.is_shared_out:
                self._meet(plan.mark)
                self._read_slices(transfers, half, targets)
        if plan.in_place:
            self._combine_in_place(plan, sources, targets)
        return results

    def _combine_in_place(self, plan: TransferPlan, sources: Sequence[Array], targets: Sequence[Array]) -> None:
        """Combines the arrays that do not travel. All ranks are in the call, and have said where their arrays lie."""
        assert self._peers is not None
        addresses = [theirs[: len(plan.in_place)].tolist() for theirs in self._addresses]
        for place, (index, slices) in enumerate(plan.in_place):
            mine, item_bytes = slices[self._rank], sources[index].itemsize
            begins = [theirs[place][0] + mine.start * item_bytes for theirs in addresses]
            self._peers.combine(sources[index][mine], begins, plan.operation, targets[index][mine])
        self._meet(plan.mark)
        for place, (index, slices) in enumerate(plan.in_place):
            target = targets[index]
            for rank, theirs in enumerate(slices):
                if rank != self._rank:
                    self._peers.read(rank, addresses[rank][place][1] + theirs.start * target.itemsize, target[theirs])
        self._meet(plan.mark)  # from here on the caller may write what others have read

    def _combine_my_slice(self, transfer: Transfer, half: int, plan: TransferPlan, target: Array) -> None:
        mine = transfer.slices[self._rank]
        combine([memory[mine] for memory in transfer.memory[half]], plan.operation, target[mine])
        transfer.memory[half][self._rank][mine] = target[mine]

    def _read_slices(self, transfers: Sequence[Transfer], half: int, targets: Sequence[Array]) -> None:
        for transfer in transfers:
            target = targets[transfer.index][transfer.part]
            for rank, theirs in enumerate(transfer.slices):
                if rank != self._rank:
                    target[theirs] = transfer.memory[half][rank][theirs]

    def _plan(self, arrays: Sequence[Array], reduction: Reduction) -> TransferPlan:
        # Not the enumeration's member: its hash is a Python function.
        key = (reduction is Reduction.SUM or reduction.value, *[(array.shape, array.dtype) for array in arrays])
        plan = self._plans.get(key)
        if plan is None:
            plan = plan_transfers(arrays, reduction, self._halves, can_read_memory=self._peers is not None)
            if len(self._plans) >= _KEPT_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def _meet(self, mark: int) -> None:
        try:
            self._meeting.meet(mark)
        except DesynchronizedError:
            self._half = 0  # in other calls, ranks have used other halves; all are here, and none reads any more
            raise

    def all_gather(self, array: Array) -> list[Array]:
        """See `Group.all_gather`."""
        self._meet(mark_of("all_gather", (array.shape[1:], array.dtype.name)))
        return self._inner.all_gather(array)

    def broadcast(self, arrays: Sequence[Array]) -> list[Array]:
        """See `Group.broadcast`."""
        self._meet(mark_of("broadcast", [(array.shape, array.dtype.name) for array in arrays]))
        return self._inner.broadcast(arrays)

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self._meet(self._barrier_mark)

    def send(self, array: Array, to: int, tag: int = 0) -> Request[None]:
        """See `Group.send`. Through MPI, which has shared memory of its own for messages."""
        return self._inner.send(array, to, tag)

    def recv(self, shape: Sequence[int], dtype: npt.DTypeLike, source: int, tag: int = 0) -> Request[Array]:
        """See `Group.recv`."""
        return self._inner.recv(shape, dtype, source, tag)

    def split(self, colour: int | None, key: int = 0) -> Group | None:
        """See `Group.split`. A group of some ranks of one host has windows of its own."""
        self._meet(self._split_mark)
        return self._inner.split(colour, key)

    def close(self) -> None:
        """See `Group.close`.

        Raises:
            DesynchronizedError: other ranks are not at their end; they learn it, too.
        """
        self._meeting.meet_idly(mark_of("close"))
        self._plans.clear()  # which show the windows' memory
        self._free()
        self._inner.close()
