"""Gradients, where a script takes them and where an optimizer gets them.

Gradients that are taken are noted (`replica.note_gradients`). Where replicas share a batch, they are summed over ranks
at the entrance of the optimizer, before the optimizer uses them.

Keras 3 clips, accumulates and tests for overflow on each replica's own gradients, and all-reduces afterwards: wrong
weights with `clipnorm`, a crash with `gradient_accumulation_steps`, `-inf` after an overflow on one replica only. One
reduction at the entry of `apply` makes all of them see what one worker would see; Keras's own later all-reduce is then
the identity.

    apply(gradients) ─► sum over ranks ─► clip ─► update
    apply(gradients) ─► accumulate, and each k-th time ─► sum over ranks ─► clip ─► update
    LossScaleOptimizer.apply ─► sum over ranks ─► finite? ─► inner.apply (already summed, not again)

Sums are for loops with `strategy.run` only: a trainer's step is divided as a whole (`divided_steps.py`).
"""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from paceline.fit import own_functions, own_loops, updates_in_loops
from paceline.fit.lineage import From, lineage_of
from paceline.fit.replica import current_replica, note_gradients, refuse_lonely_step
from paceline.strategy import operation_seeds
from paceline.strategy.as_one_worker import is_as_one_worker
from paceline.strategy.base import SynchronousStrategy
from paceline.strategy.replica_context import PacelineReplicaContext, StepRows

Function = Callable[..., Any]


def built(keras_build: Function) -> Function:
    """Keras's `optimizer.build` for an optimizer that may have been made outside the strategy's scope.

    Such an optimizer remembers TensorFlow's default strategy, which refuses to make its slots inside another one.
    """

    def build(self: Any, *args: Any, **kwargs: Any) -> Any:
        _take_strategy_of_scope(self)
        return keras_build(self, *args, **kwargs)

    return build


def _take_strategy_of_scope(optimizer: Any) -> None:
    strategy = tf.distribute.get_strategy()
    is_known = isinstance(strategy, SynchronousStrategy) or is_as_one_worker()
    if is_known and hasattr(optimizer, "_distribution_strategy"):
        optimizer._distribution_strategy = strategy


def applied(keras_apply: Function) -> Function:
    """Keras's `optimizer.apply` on gradients that have been summed over ranks."""

    def apply(self: Any, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> Any:
        _take_strategy_of_scope(self)  # one that was built in no scope, as by `load_model`; also of a single replica
        replica = current_replica()
        if replica is None:
            refuse_lonely_step()
            is_loop = own_loops.run_alike()
            if tf.executing_eagerly() and (is_loop or is_as_one_worker()):
                update = own_loops.updated_eagerly if is_loop else own_loops.updated_alike
                return update(self, list(grads), lambda gradients: keras_apply(self, gradients, trainable_variables))
            if is_loop:
                own_functions.note_update()
            if updates_in_loops.are_traced():
                if trainable_variables is not None:
                    trainable_variables = list(trainable_variables)
                return updates_in_loops.applied(self, list(grads), trainable_variables, keras_apply)
            return keras_apply(self, grads, trainable_variables)
        if replica.gradients_are_reduced:
            return keras_apply(self, grads, trainable_variables)
        if replica.rows.is_here:
            replica.rows.statistics.settle()  # a step may copy the weights after this, for an average of them
        gradients = list(grads)
        # Each rank accumulates a part: the parts are summed the k-th time (`clipped`).
        if not getattr(self, "gradient_accumulation_steps", None):
            gradients = summed_over_ranks(gradients, replica.collectives.all_reduce, replica)
            replica.gradients_are_reduced = True
        try:
            with operation_seeds.of_all_ranks():
                return keras_apply(self, gradients, trainable_variables)
        finally:
            replica.gradients_are_reduced = False

    return apply


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


def taken(tape_gradient: Function) -> Function:
    """`tf.GradientTape.gradient`."""

    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        gradients = tape_gradient(self, target, sources, *args, **kwargs)
        note_gradients(sources, gradients)
        return gradients

    return gradient


def taken_in_graph(tensorflow_gradients: Function) -> Function:
    """`tf.gradients`, which needs no tape."""

    def gradients(ys: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        taken_of = tensorflow_gradients(ys, xs, *args, **kwargs)
        note_gradients(xs, taken_of)
        return taken_of

    return gradients


def summed_over_ranks(gradients: list[Any], all_reduce: Function, replica: PacelineReplicaContext) -> list[Any]:
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


def _each_once(values: Any, indices: Any, of_rows: bool, replica: PacelineReplicaContext) -> tuple[Any, Any]:
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
