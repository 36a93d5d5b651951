"""Reading the memory of the other ranks of this host: large arrays are combined where they lie, without windows.

    rank 0   sum slice 0: own + rank 1's ─► barrier ─► read slice 1 of rank 1's result ─► barrier
    rank 1   sum slice 1: rank 0's + own ─► barrier ─► read slice 0 of rank 0's result ─► barrier

A window is written by its owner and read by all the others, again and again: where cores do not share a cache, each
line must be fetched back from the readers' before it can be written. 11 MB through windows take 1.9 ms between two
cores with one cache and 6 ms between others; read like this they take 2 ms on either (`benchmarks/all_reduce`).

The kernel allows it to processes of one user, if the tracing of processes is not restricted. Where it is not allowed,
everything goes through the windows.
"""

import contextlib
import ctypes
import os
from collections.abc import Sequence

import numpy as np

from paceline.comm.group import Array, Group, Reduction
from paceline.comm.window_meeting import wait_until

_TOKEN_BYTES = 16
_CHUNK_BYTES = 512 << 10
"""What is read at once before it is added: stays in the core's own cache."""
_PR_SET_PTRACER = 0x59616D61


class _Span(ctypes.Structure):
    """The C library's ``iovec``."""

    _fields_ = (("address", ctypes.c_void_p), ("num_bytes", ctypes.c_size_t))


class PeerMemory:
    """What one rank of a group on one host can read of the others.

    Args:
        rank: This rank.
        process_ids: Of all ranks, in rank order.

    Raises:
        AttributeError: the C library has no such call.
    """

    def __init__(self, rank: int, process_ids: Sequence[int]) -> None:
        self._rank = rank
        self._process_ids = process_ids
        self._read_memory = ctypes.CDLL(None, use_errno=True).process_vm_readv
        span, number = ctypes.POINTER(_Span), ctypes.c_ulong
        self._read_memory.argtypes = ctypes.c_int, span, number, span, number, number
        self._read_memory.restype = ctypes.c_ssize_t
        self._scratch = np.empty(_CHUNK_BYTES, np.uint8)

    def read(self, rank: int, address: int, target: Array) -> None:
        """As `try_to_read`, but waits for ever if the rank has ended, as any collective does."""
        try:
            self.try_to_read(rank, address, target)
        except ProcessLookupError:
            wait_until(lambda: False)

    def try_to_read(self, rank: int, address: int, target: Array) -> None:
        """Fills `target` with the bytes at `address` of a rank.

        Args:
            rank: Whose memory.
            address: Where it begins there.
            target: Contiguous.

        Raises:
            ProcessLookupError: this process sees no process of that number.
            OSError: the kernel refuses.
        """
        begin, num_bytes = target.ctypes.data, target.nbytes
        done = 0
        while done < num_bytes:
            local, remote = (_Span(start + done, num_bytes - done) for start in (begin, address))
            count = self._read_memory(self._process_ids[rank], ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
            if count <= 0:
                number = ctypes.get_errno()
                raise OSError(number, f"reading the memory of rank {rank}: {os.strerror(number)}")
            done += count

    def holds(self, rank: int, address: int, expected: Array) -> bool:
        """Whether these bytes lie there: in another container the process of that number is another one, or nobody.

        Raises:
            OSError: see `try_to_read`.
        """
        there = np.empty_like(expected)
        self.try_to_read(rank, address, there)
        return np.array_equal(there, expected)

    def combine(self, source: Array, addresses: Sequence[int], operation: np.ufunc, out: Array) -> None:
        """Combines arrays that lie in the ranks' memory, in rank order, which gives the bits that the windows give.

        Args:
            source: This rank's; flat and contiguous.
            addresses: Where each rank's begins, in its own memory.
            operation: Of two arrays.
            out: Receives the result; no rank's source.
        """
        chunk = _CHUNK_BYTES // source.itemsize
        scratch = self._scratch[: chunk * source.itemsize].view(source.dtype)
        for start in range(0, source.size, chunk):
            own, total = source[start : start + chunk], out[start : start + chunk]
            sum_so_far = own
            for rank, address in enumerate(addresses):
                part = own
                if rank != self._rank:
                    part = scratch[: own.size] if rank else total
                    self.read(rank, address + start * source.itemsize, part)
                if rank:
                    operation(sum_so_far, part, out=total)
                sum_so_far = total if rank else part


def peers_of(group: Group) -> PeerMemory | None:
    """What this rank can read of the others of `group`, all on one host; None if any cannot. Collective."""
    with contextlib.suppress(OSError, AttributeError):
        # Where only ancestors may read, as Yama has it: all that the agent has started may, too.
        if os.getppid() > 1:
            ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(os.getppid()), 0, 0, 0)
    token = np.frombuffer(os.urandom(_TOKEN_BYTES), np.uint8)
    tokens = group.all_gather(token[None])
    places = group.all_gather(np.array([[os.getpid(), token.ctypes.data]], np.int64))
    peers = None
    with contextlib.suppress(OSError, AttributeError):
        found = PeerMemory(group.rank, [int(place[0, 0]) for place in places])
        if all(found.holds(rank, int(place[0, 1]), tokens[rank]) for rank, place in enumerate(places)):
            peers = found
    [all_can] = group.all_reduce([np.array(peers is not None)], Reduction.MIN)
    return peers if all_can else None
