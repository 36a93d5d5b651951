"""What an optimizer decides over all stages, though each stage's has its own gradients only.

    clip_by_global_norm    the norm of the gradients of all stages
    LossScaleOptimizer     gradients are finite if those of all stages are

Both are one sum in the graph of the update. So every stage updates, in the same step, also one without gradients.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.group import Reduction
from paceline.pipeline.deferred_variables import is_elsewhere
from paceline.strategy.graph_collectives import GraphCollectives

Function = Callable[..., Any]


class _Updating(threading.local):
    """What this thread updates."""

    collectives: GraphCollectives | None = None
    """Over the stages whose update is traced."""
    counted: Sequence[bool] = ()
    """For each gradient, whether it counts here: not that of a weight which another stage has, too, and counts."""


_updating = _Updating()


@contextlib.contextmanager
def of_all_stages(collectives: GraphCollectives, counted: Sequence[bool]) -> Iterator[None]:
    """While this lasts, what is traced is the update of one of the stages that `collectives` connect.

    Args:
        collectives: Over the stages.
        counted: For each gradient that is given to the optimizer, whether a norm over all stages has it from this one.
    """
    before = _updating.collectives, _updating.counted
    _updating.collectives, _updating.counted = collectives, counted
    try:
        yield
    finally:
        _updating.collectives, _updating.counted = before


@contextlib.contextmanager
def one_weight_after_the_other(optimizer: Any) -> Iterator[None]:
    """While this lasts, a graph of the optimizer's update begins with a weight when it is done with the one before.

    Else TensorFlow computes the first operation of all updates, then the second one, and so holds each intermediate
    result for all weights: as much again as the weights take.
    """
    own = getattr(optimizer, "inner_optimizer", optimizer)
    update_step = own.update_step
    last: list[Any] = []

    def after_the_one_before(gradient: Any, variable: Any, learning_rate: Any) -> None:
        graph = tf.compat.v1.get_default_graph()
        with tf.control_dependencies([operation for operation in last if operation.graph is graph]):
            gradient = tf.identity(gradient)
        update_step(gradient, variable, learning_rate)
        last[:] = graph.get_operations()[-1:]

    object.__setattr__(own, "update_step", after_the_one_before)
    try:
        yield
    finally:
        object.__delattr__(own, "update_step")


def asks_other_stages(optimizer: Any) -> bool:
    """Whether its update is collective over the stages."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return inner is not None or bool(optimizer.global_clipnorm)


def clipped(keras_clip: Function) -> Function:
    """Keras's `BaseOptimizer._clip_gradients`."""

    def _clip_gradients(self: Any, grads: Any) -> Any:
        if _updating.collectives is None or self.clipnorm or not self.global_clipnorm:
            return keras_clip(self, grads)
        given = [gradient for gradient in grads if gradient is not None]
        parts = [keras.ops.sum(keras.ops.square(gradient)) for gradient in given]
        counted = [
            part if counts else tf.zeros_like(part) for part, counts in zip(parts, _updating.counted, strict=True)
        ]
        squares = keras.ops.sum(keras.ops.stack(counted))
        [total] = _updating.collectives.all_reduce([tf.cast(squares, tf.float64)])
        norm = tf.cast(keras.ops.sqrt(total), squares.dtype)
        scale = self.global_clipnorm * keras.ops.minimum(1.0 / norm, 1.0 / self.global_clipnorm)
        scale += norm - norm  # as Keras: what is not finite makes everything not a number
        return [None if gradient is None else gradient * scale for gradient in grads]

    return _clip_gradients


def found_finite(keras_check: Function) -> Function:
    """Keras's `LossScaleOptimizer.check_finite`."""

    def check_finite(self: Any, grads: Any) -> Any:
        finite = keras_check(self, grads)
        if _updating.collectives is None:
            return finite
        [everywhere] = _updating.collectives.all_reduce([tf.cast(finite, tf.int32)], Reduction.MIN)
        return tf.cast(everywhere, tf.bool)

    return check_finite


def finalized(keras_finalize: Function) -> Function:
    """Keras's `finalize_variable_values`, for the variables that are here."""

    def finalize_variable_values(self: Any, var_list: Any) -> Any:
        return keras_finalize(self, [variable for variable in var_list if not is_elsewhere(variable)])

    return finalize_variable_values
