"""Buffers into which snapshots are copied, reused from one snapshot to the next.

    step 100   copy ─► [memory 1]    written …………………… free
    step 200   copy ─► [memory 2]    (1 is still being written)
    step 300   copy ─► [memory 1]

New memory has to be filled with pages by the kernel while the step waits, which takes longer than the copy itself. Two
are enough: one that is being written, one that waits for it or is being filled.

One core cannot move as much as the memory can: large arrays are copied at the end, by as many threads as the worker has
cores, in pieces of one size.
"""

import os
import threading
from collections import deque
from typing import Any

import numpy as np

_PIECE_BYTES = 1 << 20
"""Far more than handing it to a thread costs."""

_MAX_THREADS = 4
"""A few saturate what a processor's memory gives; the others would take turns."""


class CopyBuffers:
    """The arrays of one snapshot: where the next one has arrays of the same names, types and shapes, it reuses them."""

    def __init__(self) -> None:
        self._arrays: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        self._pieces: deque[tuple[Any, Any]] = deque()

    def begin(self) -> None:
        """A new snapshot: what it does not ask for goes with the one after it."""
        self._before, self._arrays = self._arrays, {}
        self._pieces.clear()  # of one that was not completed

    def end(self) -> None:
        """The snapshot is complete: all its arrays have their values; those that it had no use for are freed."""
        self._before = {}
        _copy_all(self._pieces)

    def copy(self, name: str, array: Any) -> Any:
        """What will be a copy of `array` (any shape and type) at the `end`; valid until the memory is given back.

        `array` must not change before the end.
        """
        array = np.asarray(array)
        kept = self._before.pop(name, None)
        if kept is None or (kept.shape, kept.dtype) != (array.shape, array.dtype):
            kept = np.empty(array.shape, array.dtype)
        self._arrays[name] = kept
        if array.nbytes <= _PIECE_BYTES or not array.flags.c_contiguous:
            np.copyto(kept, array)
        else:
            rows = max(1, _PIECE_BYTES // array.itemsize)
            target, source = kept.reshape(-1), array.reshape(-1)
            self._pieces += [(target[at : at + rows], source[at : at + rows]) for at in range(0, source.size, rows)]
        return kept


def _copy_all(pieces: deque[tuple[Any, Any]]) -> None:
    """Copies all `pieces`, of which none is left then."""
    num_threads = min(len(os.sched_getaffinity(0)), len(pieces) // 2, _MAX_THREADS)
    helpers = [threading.Thread(target=_copy, args=(pieces,), name="paceline-copy") for _ in range(num_threads - 1)]
    for helper in helpers:
        helper.start()
    _copy(pieces)
    for helper in helpers:
        helper.join()


def _copy(pieces: deque[tuple[Any, Any]]) -> None:
    while True:
        try:
            target, source = pieces.popleft()
        except IndexError:
            return
        np.copyto(target, source)


class BufferPool:
    """Those that are free. Taken by the step's thread, given back by the one that writes."""

    def __init__(self) -> None:
        self._free: deque[CopyBuffers] = deque()
        self._are_kept = True

    def take(self) -> CopyBuffers:
        """The one that was given back last, or a new one."""
        self._are_kept = True
        try:
            return self._free.pop()
        except IndexError:
            return CopyBuffers()

    def give_back(self, memory: CopyBuffers) -> None:
        """Nobody reads the arrays of `memory` any more."""
        if self._are_kept:
            self._free.append(memory)

    def release(self) -> None:
        """Frees all, also what is still to be given back; until one is taken again."""
        self._are_kept = False
        self._free.clear()
