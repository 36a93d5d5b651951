"""Double buffering of variables: memory for new values that nobody reads any more.

A new array for every step would cost more time than a step's arithmetic: the system hands out its pages one by one, and
clears them. Nor may a new value be written over the old one, which a callback, a snapshot in the background, or another
operation may still read. So a variable has two arrays, and they change places:

    step 1    array A is written, and becomes the variable's
    step 2    array B is written, and becomes the variable's; TensorFlow lets go of A when its last reader does
    step 3    A has no other reference: it is written; otherwise a new array is

TensorFlow adopts an array whose memory is aligned, and holds a reference until the last tensor that shares the memory
is gone: slices and reads share it. It gives references back after the next call of Python from a graph.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.spmd.loops import ALIGNMENT

_MANY_CALLS = 256
"""An array that so many calls have not taken belongs to a model that trains no more."""


class SpareArrays:
    """The arrays of a process, by shape and type. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_calls = 0
        self._arrays: dict[tuple[tuple[int, ...], str], list[_Array]] = {}

    def take(self, kinds: Sequence[tuple[tuple[int, ...], str]]) -> tuple[list[Any], list[int]]:
        """Arrays for one call, and their addresses: of undefined content, aligned, in C's order, and read by nobody.

        Args:
            kinds: For each its shape and its type.
        """
        with self._lock:
            self._num_calls += 1
            if self._num_calls % _MANY_CALLS == 0:
                self._forget()
            starts: dict[tuple[tuple[int, ...], str], int] = {}
            taken, addresses = [], []
            for kind in kinds:
                arrays = self._arrays.setdefault(kind, [])
                place = starts.get(kind, 0)
                while place < len(arrays) and not arrays[place].is_spare():
                    place += 1
                if place == len(arrays):
                    arrays.append(_Array(*kind))
                starts[kind] = place + 1
                arrays[place].last_call = self._num_calls
                taken.append(arrays[place].array)
                addresses.append(arrays[place].address)
            return taken, addresses

    def num_bytes(self) -> int:
        """Of all arrays that may be taken again."""
        with self._lock:
            return sum(one.array.nbytes for arrays in self._arrays.values() for one in arrays)

    def _forget(self) -> None:
        for kind, arrays in list(self._arrays.items()):
            self._arrays[kind] = [one for one in arrays if self._num_calls - one.last_call < _MANY_CALLS]


class _Array:
    """An array, and when it was taken last."""

    __slots__ = ("_memory", "address", "array", "last_call")

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._memory = np.empty(size + ALIGNMENT, np.uint8)
        start = -self._memory.ctypes.data % ALIGNMENT
        self.array = self._memory[start : start + size].view(dtype).reshape(shape)
        self.address = self._memory.ctypes.data + start
        self.last_call = 0

    def is_spare(self) -> bool:
        """Whether nobody else refers to the array, or to its memory, as a slice of it does.

        This object does, and the call that counts; to the memory also the array.
        """
        return sys.getrefcount(self.array) == 2 and sys.getrefcount(self._memory) == 3
