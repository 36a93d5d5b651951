"""Arrays that begin where TensorFlow takes them without a copy, or beside it."""

import numpy as np

BOUNDARY_BYTES = 64
"""TensorFlow takes arrays that begin at a multiple of this without a copy."""


def array_at(offset: int, values: np.ndarray) -> np.ndarray:
    """A copy of `values` that begins so many bytes behind a boundary."""
    memory = np.empty(values.nbytes + 2 * BOUNDARY_BYTES, "uint8")
    begin = -memory.ctypes.data % BOUNDARY_BYTES + offset
    array = memory[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array
