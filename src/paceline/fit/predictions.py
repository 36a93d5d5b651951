"""`predict` ends on all ranks at the same step.

Keras's `predict` takes its batches from the iterator in Python, before its step. Where ranks feed rows of their own and
do not all know how many, they count them there, for each batch: an end inside the step would lose the rows of the steps
before it in the same execution (`steps_per_execution`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from paceline.comm.world import World
from paceline.data.own_rows.division import rows_of
from paceline.strategy.base import SynchronousStrategy
from paceline.strategy.bridged_collectives import total_and_first_row
from paceline.strategy.graph_collectives import GraphCollectives
from paceline.strategy.replica_context import NO_MORE

Function = Callable[..., Any]


def as_they_are(keras_reduce: Function) -> Function:
    """Keras's `reduce_per_replica`, which knows no strategy of Paceline's: its steps return whole values."""

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        return values if isinstance(strategy, SynchronousStrategy) else keras_reduce(values, strategy, reduction)

    return reduce_per_replica


def of_all_ranks(collectives: GraphCollectives, rank: int, value: Any) -> Any:
    """A component of a batch, or an output of a step, over all ranks in rank order. Collective.

    Args:
        collectives: Of the replicas.
        rank: This rank's, among them.
        value: A tensor of any kind, but no scalar; ranks may differ in the number of rows.
    """
    if isinstance(value, tf.RaggedTensor):
        lengths = [collectives.all_gather(own) for own in value.nested_row_lengths()]
        values = collectives.all_gather(value.flat_values)
        return tf.RaggedTensor.from_nested_row_lengths(values, lengths, validate=False)
    if isinstance(value, tf.SparseTensor):
        return _sparse_of_all_ranks(collectives, rank, value)
    return collectives.all_gather(value)


def _sparse_of_all_ranks(collectives: GraphCollectives, rank: int, value: Any) -> Any:
    """The rows of `tf.sparse.concat`, but as wide as the widest rank's."""
    shapes = collectives.all_gather(value.dense_shape[tf.newaxis])
    first_row = tf.reduce_sum(shapes[:rank, 0])
    beside = tf.zeros([tf.shape(value.dense_shape)[0] - 1], tf.int64)
    indices = collectives.all_gather(value.indices + tf.concat([[first_row], beside], 0))
    values = collectives.all_gather(value.values)
    return tf.SparseTensor(
        indices, values, tf.concat([tf.reduce_sum(shapes[:, :1], 0), tf.reduce_max(shapes[:, 1:], 0)], 0)
    )


def counted_batches(batches: Any, world: World) -> Iterator[Any]:
    """Batches of this rank's own rows that end on all ranks together: when none has rows, or one cannot go on.

    Args:
        batches: This rank's; without end, if they can be empty.
        world: Who counts. Each batch is a collective.
    """
    left = iter(batches)
    while True:
        try:
            batch = next(left)
            rows = int(rows_of(batch))
        except (StopIteration, tf.errors.OutOfRangeError):
            batch, rows = None, NO_MORE
        if total_and_first_row(world, rows)[0] <= 0:
            return
        yield batch
