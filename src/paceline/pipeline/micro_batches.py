"""Micro-batches: which rows each has, and what it would have to ask of the others.

A micro-batch is to a pipeline what a rank's rows are to data parallelism: a part of the global batch. So the graph of a
chunk is divided by the same rules (`spmd/`), for one micro-batch in the place of one rank:

    rows of the batch     own rows      what is handed on, predictions
    a sum over rows       an addend     losses, gradients, metrics: added up until the batch ends
    the sum itself        a message     denominators, such as the number of unmasked entries

A message would have to wait until all micro-batches have come so far, which is the end of all pipelining. But every
rank has the whole batch of data, so what follows from the data alone is computed of all rows, once a batch, and fed to
each micro-batch. What follows from what layers compute is refused.
"""

import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import tensorflow as tf

from paceline.data.batch_rows import even_slice, local_slice
from paceline.errors import ConfigurationError
from paceline.pipeline.cut_graphs import behind
from paceline.spmd.decisions import Operation
from paceline.spmd.messages import Messages
from paceline.spmd.rules.own_rows import SCOPE


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
    slices = [even_slice(end - begin, index, number) for index in range(number)]
    return [(begin + first, begin + last) for first, last in slices]


class OfData:
    """Knows which tensors of the current graph, a chunk's, follow from the data of a batch and its states alone.

    Args:
        others: Tensors that follow from more: what other chunks have made, and weights.
        weights: TensorFlow variables that are read in the graph.
    """

    def __init__(self, others: Sequence[Any], weights: Sequence[Any]) -> None:
        self._graph = tf.compat.v1.get_default_graph()
        self._others = {tensor.op for tensor in others}
        self._handles = {id(variable.handle) for variable in weights}

    def has(self, tensor: Any) -> bool:
        """Whether a tensor does; False of one of a loop or branch."""
        if tensor.graph is not self._graph:
            return False
        read = {inside.op for outside, inside in self._graph.captures if id(outside) in self._handles}
        operations = behind([tensor])
        # What sums over own rows has other numbers of all rows.
        return operations.isdisjoint(self._others | read) and not any(SCOPE in one.name for one in operations)


class MicroBatchMessages(Messages):
    """The messages of one micro-batch: nobody is asked, what would be sent is noted.

    Args:
        first_row: int64 scalar, the number of its first row in the batch.
        of_data: Knows what follows from the data.
    """

    acts_outside = False

    def __init__(self, first_row: Any, of_data: OfData) -> None:
        self._is_first, self._of_data = tf.equal(first_row, 0), of_data
        self.parts: list[Any] = []
        """What this micro-batch has of what all would exchange."""
        self.totals: list[Any] = []
        """For each of these the stand-in for what all have together. If the micro-batch has all rows, equal to it."""

    def addend(self, whole: Any) -> Any:
        """See `Messages.addend`: the micro-batch with the first row has it."""
        if whole.dtype == tf.variant:  # a list of tensors
            return tf.cond(self._is_first, lambda: whole, lambda: tf.zeros_like(whole))
        return tf.where(self._is_first, whole, tf.zeros_like(whole))

    def first_of(self, tensors: Sequence[Any]) -> Sequence[bool]:
        """See `Messages.first_of`: what follows from the data. Divided by its sum, an addend stays an addend."""
        first = [self._of_data.has(tensor) for tensor in tensors]
        return first if any(first) else [True] * len(tensors)

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """See `Messages.sum`."""
        return [self._total(part) for part in addends]

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """See `Messages.gather`."""
        return [self._total(part) for part, _ in parts]

    def called(self, op: Operation, inputs: Sequence[Any]) -> list[Any]:
        """See `Messages.called`.

        Raises:
            ConfigurationError: always.
        """
        del inputs
        raise ConfigurationError(
            f"A layer, loss or metric calls Python (operation {op.name!r}), which needs the rows of the whole batch: a "
            "micro-batch has a part of them. Write it with operations of keras.ops or TensorFlow, or take "
            "PipelineStrategy(micro_batches=1) without replicas. [pipeline]"
        )

    def _total(self, part: Any) -> Any:
        total = tf.identity(part)
        self.parts.append(part)
        self.totals.append(total)
        return total


def refuse_all_rows(who: str) -> NoReturn:
    """Refuses a chunk of which `who`, a line or operation, needs what layers compute for all rows.

    Raises:
        ConfigurationError: always.
    """
    raise ConfigurationError(
        f"A loss, metric or layer adds up what layers compute for all rows of a batch ({who}): a micro-batch does not "
        "know it. So do BatchNormalization with synchronized=True, masks that depend on weights, and losses that "
        "compare rows. Leave it out, train without a pipeline, or take PipelineStrategy(micro_batches=1) without "
        "replicas. [pipeline]"
    )
