"""Micro-batches: which rows each has, and the replica context in which its graph is built.

A micro-batch is to a pipeline what a rank's rows are to data parallelism: a part of the global batch, of which three
numbers say all (its rows, its first row, the rows of the batch). In its replica context the patches of Keras scale
losses and draw random numbers by these numbers. Nothing is asked of other ranks: every rank knows the whole batch.
"""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.data.batch_rows import local_slice
from paceline.strategy.replica_context import PacelineReplicaContext, StepRows

_SEVERAL = 2
"""What a context says that it has replicas of: one graph serves batches of any number of micro-batches."""


@functools.cache
def rows_of_micro_batches(
    num_rows: int, micro_batches: int, replica: int = 0, replicas: int = 1
) -> list[tuple[int, int]]:
    """(first row, end) of each micro-batch of a replica's rows; as many as it has rows, if these are fewer.

    A replica without rows has one micro-batch without rows: it takes part in whatever all replicas do.

    >>> rows_of_micro_batches(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    >>> rows_of_micro_batches(2, 3)
    [(0, 1), (1, 2)]
    >>> rows_of_micro_batches(7, 2, replica=1, replicas=2)
    [(4, 6), (6, 7)]
    >>> rows_of_micro_batches(1, 2, replica=1, replicas=2)
    [(1, 1)]
    """
    begin, end = local_slice(num_rows, replica, replicas)
    number = max(1, min(end - begin, micro_batches))
    slices = [local_slice(end - begin, index, number) for index in range(number)]
    return [(begin + first, begin + last) for first, last in slices]


class MicroBatchRows(StepRows):
    """The rows of a micro-batch; see `StepRows`.

    Args:
        local: int32 scalar, its rows.
        begin: int64 scalar, the row of the batch that is its first.
        total: int64 scalar, the rows of the batch.
        sums: Of the batch, of what the context's code asks for.
    """

    def __init__(self, local: Any, begin: Any, total: Any, sums: "BatchSums") -> None:
        super().__init__(local, 0, _SEVERAL, sums)  # type: ignore[arg-type]  # it has what is asked of it
        self._begin, self._total = begin, total
        self.is_micro_batch = True

    def begin(self) -> Any:
        """int64 scalar: the first row."""
        return self._begin

    def everywhere(self, flag: Any) -> Any:
        """What is asked is answered by shapes, which are known here; a sum would need what layers compute."""
        return flag

    def _global(self) -> Any:
        return self._total


class BatchSums:
    """Sums over the micro-batches of a batch, for denominators that are no row counts (masks, weights).

    In the graph of one micro-batch they are tensors to be fed: `parts` has what this micro-batch adds to each, which
    must follow from the data alone, and `totals` has the tensors.
    """

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.totals: list[Any] = []

    def all_reduce(self, tensors: Sequence[Any], *_: Any) -> list[Any]:
        """Stand-ins for the sums of `tensors` over the micro-batches."""
        own = [tf.convert_to_tensor(tensor) for tensor in tensors]
        totals = [tf.identity(tensor) for tensor in own]
        self.parts += own
        self.totals += totals
        return list(totals)


class MicroBatchContext(PacelineReplicaContext):
    """The replica context of a micro-batch, one of several.

    Args:
        strategy: The model's.
        rows: The micro-batch's.
        sums: Given out as `collectives`.
    """

    def __init__(self, strategy: Any, rows: MicroBatchRows, sums: BatchSums) -> None:
        super().__init__(strategy, 0, rows, sums)  # type: ignore[arg-type]

    @property
    def num_replicas_in_sync(self) -> int:
        """Several."""
        return _SEVERAL
