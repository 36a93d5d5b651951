"""Gradients are summed over ranks where they enter the optimizer, before it does anything with them.

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

import keras
import tensorflow as tf

from paceline.comm.world import current_world
from paceline.fit.replica import current_batch_replica, current_replica, taking_place
from paceline.fit.shares import is_share, mark_as_share
from paceline.strategy import draws
from paceline.strategy.base import SynchronousStrategy
from paceline.strategy.graph_collectives import GraphCollectives
from paceline.strategy.replica_context import StepRows

Function = Callable[..., Any]


def built(keras_build: Function) -> Function:
    """Keras's `optimizer.build` for an optimizer that may have been made outside the strategy's scope.

    Such an optimizer remembers TensorFlow's default strategy, which refuses to make its slots inside another one.
    """

    def build(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = tf.distribute.get_strategy()
        if isinstance(strategy, SynchronousStrategy) and hasattr(self, "_distribution_strategy"):
            self._distribution_strategy = strategy
        return keras_build(self, *args, **kwargs)

    return build


def applied(keras_apply: Function) -> Function:
    """Keras's `optimizer.apply` on gradients that have been summed over ranks."""

    def apply(self: Any, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> Any:
        replica = current_replica()
        if replica is None:
            _refuse_lonely_step()
            return keras_apply(self, grads, trainable_variables)
        if hasattr(self, "_distribution_strategy"):
            self._distribution_strategy = replica.strategy  # of one that was built in no scope, as `load_model` does
        if replica.gradients_are_reduced:
            return keras_apply(self, grads, trainable_variables)
        gradients = list(grads)
        if replica.rows.known and replica.rows.of_trainer:
            if not replica.rows.loss_is_share:
                gradients = _weighed_by_rows(gradients, replica.rows)
            gradients = _none_without_rows(gradients, replica.rows)
        if not getattr(self, "gradient_accumulation_steps", None):
            gradients = _summed_over_ranks(gradients, replica.strategy.extended.collectives)
            replica.gradients_are_reduced = True
        try:
            with taking_place(), draws.of_all_ranks():
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
            grads = _summed_over_ranks(list(grads), replica.strategy.extended.collectives)
            replica.gradients_are_reduced = True
        return keras_clip(self, grads)

    return _clip_gradients


def taken(tape_gradient: Function) -> Function:
    """`tf.GradientTape.gradient`, whose results in a trainer's step are shares where it took them of one loss per row.

    A tape adds the rows of its target up: gradients of variables are then sums, which add up over ranks as they are.
    What a user makes of them may be no sum any more (a mean, divided by this rank's rows): see `shares.py`.
    """

    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        gradients = tape_gradient(self, target, sources, *args, **kwargs)
        replica = current_batch_replica()
        if replica is not None and replica.rows.of_trainer and _has_rows(target, replica.rows):
            for source, value in zip(tf.nest.flatten(sources), tf.nest.flatten(gradients), strict=True):
                if isinstance(source, (keras.Variable, tf.Variable)):
                    mark_as_share(value.values if isinstance(value, tf.IndexedSlices) else value)
        return gradients

    return gradient


def _has_rows(target: Any, rows: StepRows) -> bool:
    """Whether `target` holds a number per row, or more; one that stacks a few means has another, known length."""
    num_rows = tf.get_static_value(rows.local)
    losses = [loss for loss in tf.nest.flatten(target) if tf.is_tensor(loss) and loss.shape.rank]
    return any(loss.shape[0] in (None, num_rows) for loss in losses)


def _weighed_by_rows(gradients: list[Any], rows: StepRows) -> list[Any]:
    """The gradients of a loss that a user's own `train_step` has averaged over this rank's rows.

    No Keras loss took part, so nothing has turned the local mean into a share of the global one: without this, the sum
    over ranks would be N times too large. Gradients of one loss per row are sums, and stay. In custom loops
    TensorFlow's rule stays: there the user divides.
    """

    def share_of(values: Any) -> Any:
        # No NaN: the mean over a rank without rows is not a number, and counts nothing.
        return tf.math.multiply_no_nan(values, rows.share(values.dtype))

    def weighed(gradient: Any) -> Any:
        if gradient is None or is_share(gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient):
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(share_of(gradient.values), gradient.indices, gradient.dense_shape)
        return share_of(tf.convert_to_tensor(gradient))

    return [weighed(gradient) for gradient in gradients]


def _none_without_rows(gradients: list[Any], rows: StepRows) -> list[Any]:
    """The gradients; zeros on a rank without rows.

    All of its losses are zero, but a mean over no rows, as BatchNormalization takes it, makes zero times NaN of them.
    """
    if tf.get_static_value(rows.local):
        return gradients  # known to have some
    given = [index for index, gradient in enumerate(gradients) if gradient is not None]
    leaves = tf.nest.flatten([gradients[index] for index in given], expand_composites=True)
    if not leaves:
        return gradients
    leaves = tf.cond(
        rows.local > 0, lambda: [tf.identity(leaf) for leaf in leaves], lambda: [tf.zeros_like(leaf) for leaf in leaves]
    )
    kept = tf.nest.pack_sequence_as([gradients[index] for index in given], leaves, expand_composites=True)
    for index, gradient in zip(given, kept, strict=True):
        gradients[index] = gradient
    return gradients


def _summed_over_ranks(gradients: list[Any], collectives: GraphCollectives) -> list[Any]:
    """The gradients of the global batch: dense ones in one message, sparse ones by the rows that they touch.

    A sparse gradient of the global batch is the ranks' rows one after the other: exactly what one worker would have
    handed to the optimizer, repeated indices included, which not all optimizers treat like their sum.
    """
    dense = [
        index
        for index, gradient in enumerate(gradients)
        if gradient is not None and not isinstance(gradient, tf.IndexedSlices)
    ]
    totals = collectives.all_reduce([gradients[index] for index in dense]) if dense else []
    for index, total in zip(dense, totals, strict=True):
        gradients[index] = total
    for index, gradient in enumerate(gradients):
        if isinstance(gradient, tf.IndexedSlices):
            gradients[index] = tf.IndexedSlices(
                values=collectives.all_gather(gradient.values),
                indices=collectives.all_gather(gradient.indices),
                dense_shape=gradient.dense_shape,
            )
    return gradients


def _refuse_lonely_step() -> None:
    """An optimizer step outside `strategy.run`, in a world of several, would train N models that never meet."""
    world = current_world()
    if world.size == 1 or not world.launched or world.solo_training_allowed:
        return
    raise RuntimeError(
        f"an optimizer step outside strategy.run, on one of {world.size} workers: each would train a model of its "
        "own and they would never meet. Make a strategy (strategy = paceline.MultiWorkerMirroredStrategy()), build "
        "the model and the optimizer in strategy.scope(), and call the step through strategy.run(step, args=(batch,)); "
        "or train with model.fit, which needs no change."
    )
