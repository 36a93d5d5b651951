"""Memory that snapshots are copied into, kept from one to the next.

    step 100   copy ─► [memory 1]    written …………………… free
    step 200   copy ─► [memory 2]    (1 is still being written)
    step 300   copy ─► [memory 1]

New memory has to be filled with pages by the kernel while the step waits, which takes longer than the copy itself. Two
are enough: one that is being written, one that waits for it or is being filled.
"""

from collections import deque
from typing import Any

import numpy as np


class Memory:
    """The arrays of one snapshot: where the next one has arrays of the same names, types and shapes, it reuses them."""

    def __init__(self) -> None:
        self._arrays: dict[str, Any] = {}
        self._before: dict[str, Any] = {}

    def begin(self) -> None:
        """A new snapshot: what it does not ask for goes with the one after it."""
        self._before, self._arrays = self._arrays, {}

    def end(self) -> None:
        """The snapshot is complete: arrays that it had no use for are freed."""
        self._before = {}

    def copy(self, name: str, array: Any) -> Any:
        """A copy of `array`, any shape and type; valid until the memory is given back."""
        array = np.asarray(array)
        kept = self._before.pop(name, None)
        if kept is None or (kept.shape, kept.dtype) != (array.shape, array.dtype):
            kept = np.empty(array.shape, array.dtype)
        np.copyto(kept, array)
        self._arrays[name] = kept
        return kept


class Memories:
    """Those that are free. Taken by the step's thread, given back by the one that writes."""

    def __init__(self) -> None:
        self._free: deque[Memory] = deque()
        self._are_kept = True

    def take(self) -> Memory:
        """The one that was given back last, or a new one."""
        self._are_kept = True
        try:
            return self._free.pop()
        except IndexError:
            return Memory()

    def give_back(self, memory: Memory) -> None:
        """Nobody reads the arrays of `memory` any more."""
        if self._are_kept:
            self._free.append(memory)

    def release(self) -> None:
        """Frees all, also what is still to be given back; until one is taken again."""
        self._are_kept = False
        self._free.clear()
