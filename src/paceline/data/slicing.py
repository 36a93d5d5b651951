"""Which rows of a global batch a rank computes: pure arithmetic, the same for numbers and for tensors."""

from typing import Any, TypeVar

Number = TypeVar("Number")


def local_slice(rows: Number, rank: int, size: int) -> tuple[Number, Number]:
    """The rows [begin, end) of a global batch that `rank` of `size` computes.

    Slices are contiguous, in rank order, cover every row exactly once, and differ by at most one row, the first ranks
    having more, as in `tf.distribute`; with fewer rows than ranks the last ones have none.

    Args:
        rows: Rows of the global batch (an int or an integer scalar tensor).
        rank: This rank.
        size: Number of ranks.

    >>> [local_slice(10, rank, 4) for rank in range(4)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    return _begin(rows, rank, size), _begin(rows, rank + 1, size)


def _begin(rows: Any, rank: int, size: int) -> Any:
    remainder = rows % size
    ranks_before_with_one_more = (rank + remainder - abs(rank - remainder)) // 2  # the smaller of the two
    return rank * (rows // size) + ranks_before_with_one_more
