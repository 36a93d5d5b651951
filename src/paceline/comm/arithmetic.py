"""Combining arrays of the ranks element by element, always in rank order, so that all ranks get the same bits."""

from collections.abc import Callable, Sequence

import numpy as np

from paceline.comm.communicator import Array, Reduction

_OPERATIONS: dict[Reduction, Callable[..., Array]] = {
    Reduction.SUM: np.add,
    Reduction.MIN: np.minimum,
    Reduction.MAX: np.maximum,
}


def combine(parts: Sequence[Array], reduction: Reduction, out: Array) -> None:
    """Writes parts[0] ∘ parts[1] ∘ … into `out`, which may be one of `parts`' memory only if it is parts[0]'s.

    Args:
        parts: One array per rank, of one shape and dtype.
        reduction: The operation.
        out: Receives the result; same shape and dtype.
    """
    if len(parts) == 1:
        if out is not parts[0]:
            np.copyto(out, parts[0])
        return
    operation = _OPERATIONS[reduction]
    operation(parts[0], parts[1], out=out)
    for part in parts[2:]:
        operation(out, part, out=out)
