"""Talking through MPI: between hosts, and the ground that the shared-memory windows stand on.

Every call is MPI's nonblocking one and a patient wait for it (see `window_meeting.py`). MPI itself is started for one
calling thread at a time, which every MPI has: `one_at_a_time` is held during each call, and never during a wait.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.comm.group import Array, Group, Reduction, Request, check_defined, check_message_bytes
from paceline.comm.solo import SoloGroup
from paceline.comm.transfers import OutputBuffers
from paceline.comm.window_meeting import wait_until

_CLOSE_POLL_SECONDS = 0.005
_PIECE_BYTES = 2 << 20
"""At 1 Gbit/s, 11 MB in such pieces take as long as the network needs for the bytes; in one piece a sixth more."""
_NATIVE_KINDS = "iufc"


one_at_a_time = threading.Lock()
"""Held by the thread that is in a call of MPI's."""


class MpiGroup(Group):
    """A group of MPI ranks; make it with `mpi_start.start_mpi`.

    Args:
        ranks: An mpi4py intracommunicator that nobody else uses (a duplicate).
        leave: Called at the end of `close`, collective: frees `ranks`, or ends MPI.
        best_over: Makes of a group over MPI the fastest group of the same ranks. Collective among them.
    """

    def __init__(
        self, ranks: Any, leave: Callable[[], None], best_over: "Callable[[MpiGroup], Group]" = lambda group: group
    ) -> None:
        from mpi4py import MPI

        self.ranks = ranks
        """The intracommunicator."""
        self._mpi = MPI
        self._leave = leave
        self._best_over = best_over
        self._rank: int = ranks.Get_rank()
        self._size: int = ranks.Get_size()
        self._packages, self._totals = OutputBuffers(), OutputBuffers()
        self._operations = {Reduction.SUM: MPI.SUM, Reduction.MIN: MPI.MIN, Reduction.MAX: MPI.MAX}

    @property
    def rank(self) -> int:
        """This process's MPI rank."""
        return self._rank

    @property
    def size(self) -> int:
        """Size of the MPI group."""
        return self._size

    def all_reduce(self, arrays: Sequence[Array], reduction: Reduction = Reduction.SUM) -> list[Array]:
        """See `Group.all_reduce`. Arrays of one dtype travel as one message."""
        check_defined(reduction, arrays)
        results: list[Array] = list(arrays)
        groups: dict[np.dtype[Any], list[int]] = {}
        for index, array in enumerate(arrays):
            groups.setdefault(array.dtype, []).append(index)
        for dtype, members in groups.items():
            carried, operation = self._carrier(dtype, reduction)
            flat = self._packed([arrays[index] for index in members], carried)
            [total] = self._totals.arrays_like([flat])
            self._reduce(flat, total, operation)
            offset = 0
            for index in members:
                array = arrays[index]
                part = total[offset : offset + array.size].reshape(array.shape)
                results[index] = part.astype(dtype, copy=False)
                offset += array.size
        return results

    def _reduce(self, flat: Array, total: Array, operation: Any) -> None:
        """Reduces `flat` into `total`, in pieces: one is worked on while the next ones are on their way."""
        count = _PIECE_BYTES // flat.itemsize
        pieces = [slice(first, first + count) for first in range(0, max(1, flat.size), count)]
        with one_at_a_time:
            requests = [self.ranks.Iallreduce(flat[piece], total[piece], operation) for piece in pieces]
        _finish(requests[0].Test if len(requests) == 1 else partial(self._mpi.Request.Testall, requests))

    def _packed(self, arrays: Sequence[Array], carried: np.dtype[Any]) -> Array:
        """All elements of `arrays` one after the other, copied only where they must be."""
        if len(arrays) == 1 and arrays[0].dtype == carried:
            return np.ascontiguousarray(arrays[0]).reshape(-1)
        [packed] = self._packages.arrays_like([np.empty(sum(array.size for array in arrays), carried)])
        np.concatenate([array.reshape(-1) for array in arrays], out=packed, casting="unsafe")
        return packed

    def _carrier(self, dtype: np.dtype[Any], reduction: Reduction) -> tuple[np.dtype[Any], Any]:
        """The dtype and operation in which MPI can reduce `dtype`: half precisions travel as float32."""
        if dtype == np.bool_:
            # NumPy's sum of truth values is "any".
            return np.dtype(np.uint8), self._operations[Reduction.MAX if reduction is Reduction.SUM else reduction]
        if dtype.kind not in _NATIVE_KINDS or dtype == np.float16:
            return np.dtype(np.float32), self._operations[reduction]
        return dtype, self._operations[reduction]

    def all_gather(self, array: Array) -> list[Array]:
        """See `Group.all_gather`."""
        rows = np.empty(self._size, np.int64)
        self._do(self.ranks.Iallgather, np.array([array.shape[0]], np.int64), rows)
        row_bytes = int(np.prod(array.shape[1:], dtype=np.int64)) * array.itemsize
        counts = rows * row_bytes
        received = np.empty(int(counts.sum()), np.uint8)
        sent = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = [received, counts.tolist(), offsets[:-1].tolist(), self._mpi.BYTE]
        self._do(self.ranks.Iallgatherv, [sent, self._mpi.BYTE], places)
        return [
            received[offsets[rank] : offsets[rank + 1]].view(array.dtype).reshape(int(rows[rank]), *array.shape[1:])
            for rank in range(self._size)
        ]

    def broadcast(self, arrays: Sequence[Array]) -> list[Array]:
        """See `Group.broadcast`."""
        results = [np.array(array, order="C") for array in arrays]
        for result in results:
            self._do(self.ranks.Ibcast, [result.reshape(-1).view(np.uint8), self._mpi.BYTE], 0)
        return results

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self._do(self.ranks.Ibarrier)

    @staticmethod
    def _do(call: Callable[..., Any], *arguments: Any) -> None:
        """One of MPI's nonblocking calls, to its end."""
        with one_at_a_time:
            request = call(*arguments)
        _finish(request.Test)

    def send(self, array: Array, to: int, tag: int = 0) -> Request[None]:
        """See `Group.send`. A contiguous array is sent from where it lies."""
        self.check_message(to, tag)
        sent = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with one_at_a_time:
            return _Sent(self.ranks.Isend([sent, self._mpi.BYTE], to, tag))

    def recv(self, shape: Sequence[int], dtype: npt.DTypeLike, source: int, tag: int = 0) -> Request[Array]:
        """See `Group.recv`."""
        self.check_message(source, tag)
        received = np.empty(shape, dtype)
        with one_at_a_time:
            request = self.ranks.Irecv([received.reshape(-1).view(np.uint8), self._mpi.BYTE], source, tag)
        return _Received(request, received, source, tag)

    def split(self, colour: int | None, key: int = 0) -> Group | None:
        """See `Group.split`."""
        self.barrier()  # patiently: from here on nobody waits long for another in MPI's call, which spins
        with one_at_a_time:
            ranks = self.ranks.Split(self._mpi.UNDEFINED if colour is None else colour, key)
        if colour is None:
            return None
        if ranks.Get_size() == 1:
            ranks.Free()
            return SoloGroup()
        return self._best_over(MpiGroup(ranks, ranks.Free, self._best_over))

    def close(self) -> None:
        """See `Group.close`. Polls, so that a rank that is done first leaves its core to the others."""
        with one_at_a_time:
            request = self.ranks.Ibarrier()
        while not _locked(request.Test):
            time.sleep(_CLOSE_POLL_SECONDS)
        with one_at_a_time:
            self._leave()


def _locked(question: Callable[[], bool]) -> bool:
    with one_at_a_time:
        return question()


def _finish(is_done: Callable[[], bool]) -> None:
    wait_until(partial(_locked, is_done))


class _Sent(Request[None]):
    """An array that MPI reads."""

    def __init__(self, request: Any) -> None:
        self._request = request  # which holds the array

    def is_done(self) -> bool:
        return _locked(self._request.Test)

    def wait(self) -> None:
        wait_until(self.is_done)


class _Received(Request[Array]):
    """An array that MPI writes."""

    def __init__(self, request: Any, array: Array, source: int, tag: int) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._request, self._array, self._source, self._tag = request, array, source, tag
        self._status = MPI.Status()
        self._is_done = self._is_too_long = False

    def is_done(self) -> bool:
        if not self._is_done:
            with one_at_a_time:
                try:
                    self._is_done = self._request.Test(self._status)
                except self._mpi.Exception as fault:
                    if fault.Get_error_class() != self._mpi.ERR_TRUNCATE:
                        raise
                    self._is_done = self._is_too_long = True
        return self._is_done

    def wait(self) -> Array:
        wait_until(self.is_done)
        num_bytes = None if self._is_too_long else self._status.Get_count(self._mpi.BYTE)
        check_message_bytes(num_bytes, self._array, self._source, self._tag)
        return self._array
