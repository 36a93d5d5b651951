"""Gradients of replicas, summed where an optimizer gets them.

Keras 3 clips, accumulates and tests for overflow on each replica's own gradients, and all-reduces afterwards: wrong
weights with `clipnorm`, a crash with `gradient_accumulation_steps`, `-inf` after an overflow on one replica only. One
reduction at the entry of `apply` makes all of them see what one worker would see; Keras's own later all-reduce is then
the identity.

    apply(gradients) ─► sum over ranks ─► clip ─► update
    apply(gradients) ─► accumulate, and each k-th time ─► sum over ranks ─► clip ─► update
    LossScaleOptimizer.apply ─► sum over ranks ─► finite? ─► inner.apply (already summed, not again)
"""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from paceline.fit.replica import current_replica
from paceline.fit.replica_loops.lineage import From, lineage_of
from paceline.strategy import operation_seeds
from paceline.strategy.replica_context import PacelineReplicaContext as Context
from paceline.strategy.replica_context import StepRows

Function = Callable[..., Any]


def applied(
    optimizer: Any,
    gradients: list[Any],
    variables: Iterable[Any] | None,
    keras_apply: Function,
    replica: Context,
) -> Any:
    """Keras's `optimizer.apply` on gradients that have been summed over ranks. Collective."""
    if replica.gradients_are_reduced:
        return keras_apply(optimizer, gradients, variables)
    if replica.rows.is_here:
        replica.rows.statistics.settle()  # a step may copy the weights after this, for an average of them
    # Each rank accumulates a part: the parts are summed the k-th time (`clipped`).
    if not getattr(optimizer, "gradient_accumulation_steps", None):
        gradients = summed_over_ranks(gradients, replica.collectives.all_reduce, replica)
        replica.gradients_are_reduced = True
    try:
        with operation_seeds.of_all_ranks():
            return keras_apply(optimizer, gradients, variables)
    finally:
        replica.gradients_are_reduced = False


def clipped(keras_clip: Function) -> Function:
    """Keras's `optimizer._clip_gradients`, the first to see accumulated gradients: these are summed over ranks here.

    Each rank accumulates its own, so k steps cost one all-reduce.
    """

    def _clip_gradients(self: Any, grads: Iterable[Any]) -> Any:
        replica = current_replica()
        if replica is not None and not replica.gradients_are_reduced:
            grads = summed_over_ranks(list(grads), replica.collectives.all_reduce, replica)
            replica.gradients_are_reduced = True
        return keras_clip(self, grads)

    return _clip_gradients


def summed_over_ranks(gradients: list[Any], all_reduce: Function, replica: Context) -> list[Any]:
    """The gradients of the global batch: dense ones in one message, sparse ones by the rows that they touch.

    A sparse gradient of the global batch is the ranks' rows one after the other: exactly what one worker would have
    handed to the optimizer, repeated indices included, which not all optimizers treat like their sum. Where all ranks
    have touched the same rows whatever their data (embeddings of positions), one worker has touched each of them once:
    these are summed.
    """
    dense = [
        index
        for index, gradient in enumerate(gradients)
        if gradient is not None and not isinstance(gradient, tf.IndexedSlices)
    ]
    collectives = replica.collectives
    totals = all_reduce([gradients[index] for index in dense]) if dense else []
    for index, total in zip(dense, totals, strict=True):
        gradients[index] = total
    for index, gradient in enumerate(gradients):
        if isinstance(gradient, tf.IndexedSlices):
            values, indices = collectives.all_gather(gradient.values), collectives.all_gather(gradient.indices)
            if _is_of_no_rows(gradient, replica.rows):
                of_rows = _has_as_many_as_rows(gradient.indices, replica.rows)
                values, indices = _each_once(values, indices, of_rows, replica)
            gradients[index] = tf.IndexedSlices(values, indices, gradient.dense_shape)
    return gradients


def _is_of_no_rows(gradient: Any, rows: StepRows) -> bool:
    """Whether a sparse gradient touches what no row of the batch has named. Eagerly nothing tells."""
    indices = gradient.indices
    return rows.known and tf.is_symbolic_tensor(indices) and From.DATA not in lineage_of(rows).of(indices)


def _each_once(values: Any, indices: Any, of_rows: bool, replica: Context) -> tuple[Any, Any]:
    """Sums of the values that all ranks have for an index; as they are if the ranks' indices differ (drawn ones).

    Args:
        values: Of all ranks, one rank's after the other's.
        indices: Theirs. All ranks see the same, and decide alike.
        of_rows: Whether this rank's may be one for each of its rows.
        replica: This rank's.
    """
    num_ranks, length = replica.num_replicas_in_sync, tf.size(indices, out_type=tf.int64)
    can_be_alike = tf.equal(length % num_ranks, 0)
    if tf.get_static_value(replica.rows.local) is not None:
        # In batches of a fixed size what is the same for each row (tf.zeros_like(x)) has become a constant.
        of_rows_anywhere = tf.reduce_any(replica.collectives.all_gather(tf.constant([of_rows])))
        num_rows = tf.maximum(replica.rows.count(), 1)
        can_be_alike &= tf.logical_not(of_rows_anywhere & tf.equal(length % num_rows, 0))

    def are_alike() -> Any:
        by_rank = tf.reshape(indices, [num_ranks, -1])
        return tf.reduce_all(tf.equal(by_rank, by_rank[:1]))

    def summed() -> tuple[Any, Any]:
        by_rank = tf.reshape(values, tf.concat([[num_ranks, -1], tf.shape(values)[1:]], axis=0))
        return tf.reduce_sum(by_rank, axis=0), tf.reshape(indices, [num_ranks, -1])[0]

    alike = tf.cond(can_be_alike, are_alike, lambda: tf.constant(False))
    total: tuple[Any, Any] = tf.cond(alike, summed, lambda: (values, indices))
    return total


def _has_as_many_as_rows(indices: Any, rows: StepRows) -> bool:
    """Whether `indices` were looked up as a tensor whose first axis is as long as this rank has rows, or may be."""
    flattened = indices.op
    while flattened.type in ("Identity", "Cast"):
        flattened = flattened.inputs[0].op
    shape = flattened.inputs[0].shape if flattened.type == "Reshape" else tf.TensorShape(None)
    return not shape.rank or shape[0] in (None, tf.get_static_value(rows.local))
