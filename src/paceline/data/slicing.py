"""Which rows of a global batch a rank computes: pure arithmetic, the same for numbers and for tensors."""

from typing import TypeVar

Number = TypeVar("Number")


def local_slice(rows: Number, rank: int, size: int) -> tuple[Number, Number]:
    """The rows [begin, end) of a global batch that `rank` of `size` computes.

    Slices are contiguous, in rank order, cover every row exactly once, and differ by at most one row; with fewer rows
    than ranks some are empty.

    Args:
        rows: Rows of the global batch (an int or an integer scalar tensor).
        rank: This rank.
        size: Number of ranks.

    >>> [local_slice(10, rank, 4) for rank in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    return rows * rank // size, rows * (rank + 1) // size  # type: ignore[operator,return-value]
