"""Gradients are summed over ranks where they enter the optimizer, before it does anything with them.

Keras 3 clips, accumulates and tests for overflow on each replica's own gradients, and all-reduces afterwards: wrong
weights with `clipnorm`, a crash with `gradient_accumulation_steps`, `-inf` after an overflow on one replica only. One
reduction at the entry of `apply` makes all of them see what one worker would see; Keras's own later all-reduce is then
the identity.

    apply(gradients) ─► sum over ranks ─► clip ─► update
    apply(gradients) ─► accumulate, and each k-th time ─► sum over ranks ─► clip ─► update
    LossScaleOptimizer.apply ─► sum over ranks ─► finite? ─► inner.apply (already summed, not again)

In a `train_step` of a user's they are summed earlier, where the tape gives them: what the step then does with them
(clips them by their norm, logs it, adds noise) it does with the gradients of the global batch.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.world import current_world
from paceline.fit.replica import current_batch_replica, current_replica, taking_place
from paceline.fit.shares import is_share, mark_as_own, mark_as_share, sources_of, terms, weight_of
from paceline.strategy import draws
from paceline.strategy.base import SynchronousStrategy
from paceline.strategy.replica_context import PacelineReplicaContext, StepRows

Function = Callable[..., Any]

_IS_GLOBAL = "_paceline_is_global"
"""On a gradient that a tape has given, summed over ranks."""
_OF_TAPE = "_paceline_of_tape"
"""On one that is not."""


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
        are_global = replica.rows.gradients_are_global and _are_made_of(gradients, _IS_GLOBAL)
        if are_global:
            pass
        elif replica.rows.known and replica.rows.of_trainer:
            gradients = _weighed_by_rows(gradients, replica.rows)
            gradients = _none_without_rows(gradients, replica.rows)
        if getattr(self, "gradient_accumulation_steps", None):
            # Each rank adds up a part: they are summed the k-th time, or where another number of ranks goes on.
            if are_global and replica.strategy.world.rank > 0:
                gradients = tf.nest.map_structure(tf.zeros_like, gradients, expand_composites=True)
        else:
            if not are_global:
                gradients = _summed_over_ranks(gradients, replica.strategy.extended.collectives.all_reduce, replica)
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
            grads = _summed_over_ranks(list(grads), replica.strategy.extended.collectives.all_reduce, replica)
            replica.gradients_are_reduced = True
        return keras_clip(self, grads)

    return _clip_gradients


def taken(tape_gradient: Function) -> Function:
    """`tf.GradientTape.gradient`, which in a trainer's step takes gradients of shares of the global loss.

    A target may add Keras losses, which are shares, and numbers of this rank's rows: each term gets its weight here
    (`shares.py`). One loss per row is a share as it is: a tape adds the rows of its target up.

    In a step of a user's, gradients of variables are then summed over ranks, except those of one loss per row: such a
    step may divide them by its rows, which are this rank's. Collective. In loops and branches within the step, where
    ranks may go ways of their own or take one row after the other, they stay as they are.
    """

    def gradient(self: Any, target: Any, sources: Any, output_gradients: Any = None, **options: Any) -> Any:
        replica = current_batch_replica()
        if replica is None or not replica.rows.of_trainer or not replica.rows.is_here:
            return tape_gradient(self, target, sources, output_gradients, **options)
        rows = replica.rows
        targets = tf.nest.flatten(target)
        given = [None] * len(targets) if output_gradients is None else tf.nest.flatten(output_gradients)
        parts = list(_parts(targets, given, rows))
        upstreams = None
        if any(upstream is not None for _, upstream in parts):
            upstreams = [tf.ones_like(value) if upstream is None else upstream for value, upstream in parts]
        gradients = tape_gradient(self, [value for value, _ in parts], sources, upstreams, **options)
        leaves = tf.nest.flatten(gradients)
        of_variables = [
            index
            for index, source in enumerate(tf.nest.flatten(sources))
            if isinstance(source, (keras.Variable, tf.Variable)) and leaves[index] is not None
        ]
        found = [leaves[index] for index in of_variables]
        is_global = not rows.in_keras_step and not any(_has_rows(value, rows) for value, _ in parts)
        if is_global:
            found = _summed_over_ranks(_none_without_rows(found, rows), replica.summed, replica)
            rows.gradients_are_global = True
        for index, value in zip(of_variables, found, strict=True):
            leaves[index] = value
            for tensor in tf.nest.flatten(value, expand_composites=True):
                setattr(tensor, _IS_GLOBAL if is_global else _OF_TAPE, True)
            # What is computed from a global one is the same number on all ranks.
            (mark_as_own if is_global else mark_as_share)(
                value.values if isinstance(value, tf.IndexedSlices) else value
            )
        return tf.nest.pack_sequence_as(gradients, leaves)

    return gradient


def _parts(targets: list[Any], upstreams: list[Any], rows: StepRows) -> Iterator[tuple[Any, Any]]:
    """What a tape should take gradients of, each with what they are multiplied by; None: one."""
    for target, upstream in zip(targets, upstreams, strict=True):
        if not tf.is_tensor(target) or not target.dtype.is_floating or _has_rows(target, rows):
            yield target, upstream
            continue
        for term in terms(target, rows):
            if term.is_share and term.value is target:
                yield target, upstream
                continue
            weight = weight_of(term, rows)
            yield term.value, weight * (tf.ones_like(term.value) if upstream is None else upstream)


def _has_rows(loss: Any, rows: StepRows) -> bool:
    """Whether `loss` holds a number per row, or more; one that stacks a few means has another, known length."""
    if not tf.is_tensor(loss) or not loss.shape.rank:
        return False
    return loss.shape[0] in (None, tf.get_static_value(rows.local))


def _are_made_of(gradients: Iterable[Any], mark: str) -> bool:
    """Whether some of `gradients` are, or are computed from, what a tape has given and marked so; eagerly: yes."""
    tensors = tf.nest.flatten([gradient for gradient in gradients if gradient is not None], expand_composites=True)
    if not all(map(tf.is_symbolic_tensor, tensors)):
        return True
    return any(hasattr(tensor, mark) for tensor in sources_of(tensors))


def _weighed_by_rows(gradients: list[Any], rows: StepRows) -> list[Any]:
    """Gradients that are means over this rank's rows, as its share of the global ones.

    Those of a tape are shares already, unless the step has divided them by its rows since. Others, which a step has
    computed by itself, are if any Keras loss took part. In custom loops TensorFlow's rule stays: there the user
    divides.
    """
    if rows.loss_is_share and not (rows.is_here and _are_made_of(gradients, _OF_TAPE) and not rows.in_keras_step):
        return gradients

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


def _summed_over_ranks(gradients: list[Any], all_reduce: Function, replica: PacelineReplicaContext) -> list[Any]:
    """The gradients of the global batch: dense ones in one message, sparse ones by the rows that they touch.

    A sparse gradient of the global batch is the ranks' rows one after the other: exactly what one worker would have
    handed to the optimizer, repeated indices included, which not all optimizers treat like their sum.
    """
    dense = [
        index
        for index, gradient in enumerate(gradients)
        if gradient is not None and not isinstance(gradient, tf.IndexedSlices)
    ]
    collectives = replica.strategy.extended.collectives
    totals = all_reduce([gradients[index] for index in dense]) if dense else []
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
