"""What an optimizer decides over all stages, though each stage's has its own gradients only.

    clip_by_global_norm    the norm of the gradients of all stages
    LossScaleOptimizer     gradients are finite if those of all stages are

Both are one sum in the graph of the update. So every stage updates, in the same step, also one without gradients.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.group import Reduction
from paceline.fit.compat import LossScaleOptimizer
from paceline.pipeline.deferred_variables import is_elsewhere
from paceline.strategy.graph_collectives import GraphCollectives, as_written

Function = Callable[..., Any]


@contextlib.contextmanager
def of_all_stages(optimizer: Any, collectives: GraphCollectives, counted: Sequence[bool]) -> Iterator[None]:
    """While this lasts, a traced update of `optimizer` is that of one of the stages that `collectives` connect.

    Args:
        optimizer: The model's.
        collectives: Over the stages.
        counted: For each gradient that is given to the optimizer, whether a norm over all stages has it from this one:
            not that of a weight which another stage has, too, and counts.
    """
    with contextlib.ExitStack() as methods:
        own = _own(optimizer)
        if isinstance(optimizer, LossScaleOptimizer):
            methods.enter_context(_replaced(optimizer, "check_finite", _finite_everywhere(optimizer, collectives)))
        if own.global_clipnorm and not own.clipnorm:
            methods.enter_context(_replaced(own, "_clip_gradients", _clipped_by_all(own, collectives, counted)))
        yield


@contextlib.contextmanager
def one_weight_after_the_other(optimizer: Any) -> Iterator[None]:
    """While this lasts, a graph of the optimizer's update begins with a weight when it is done with the one before.

    Else TensorFlow computes the first operation of all updates, then the second one, and so holds each intermediate
    result for all weights: as much again as the weights take.
    """
    own = _own(optimizer)
    update_step = own.update_step
    last: list[Any] = []

    def after_the_one_before(gradient: Any, variable: Any, learning_rate: Any) -> None:
        graph = tf.compat.v1.get_default_graph()
        with tf.control_dependencies([operation for operation in last if operation.graph is graph]):
            gradient = tf.identity(gradient)
        update_step(gradient, variable, learning_rate)
        last[:] = graph.get_operations()[-1:]

    with _replaced(own, "update_step", after_the_one_before):
        yield


def asks_other_stages(optimizer: Any) -> bool:
    """Whether its update is collective over the stages."""
    return _own(optimizer) is not optimizer or bool(optimizer.global_clipnorm)


def finalized(keras_finalize: Function) -> Function:
    """Keras's `finalize_variable_values`, for the variables that are here."""

    def finalize_variable_values(self: Any, var_list: Any) -> Any:
        return keras_finalize(self, [variable for variable in var_list if not is_elsewhere(variable)])

    return finalize_variable_values


def _own(optimizer: Any) -> Any:
    """The one that updates: a `LossScaleOptimizer` has it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


@contextlib.contextmanager
def _replaced(optimizer: Any, name: str, method: Function) -> Iterator[None]:
    """While this lasts, `optimizer` alone has this method in the place of its class's."""
    object.__setattr__(optimizer, name, method)
    try:
        yield
    finally:
        object.__delattr__(optimizer, name)


def _clipped_by_all(optimizer: Any, collectives: GraphCollectives, counted: Sequence[bool]) -> Function:
    """In place of Keras's `_clip_gradients`: by the norm of the gradients of all stages."""

    @as_written
    def _clip_gradients(grads: Any) -> Any:
        given = [gradient for gradient in grads if gradient is not None]
        parts = [keras.ops.sum(keras.ops.square(gradient)) for gradient in given]
        own = [part if counts else tf.zeros_like(part) for part, counts in zip(parts, counted, strict=True)]
        squares = keras.ops.sum(keras.ops.stack(own))
        [total] = collectives.all_reduce([tf.cast(squares, tf.float64)])
        norm = tf.cast(keras.ops.sqrt(total), squares.dtype)
        scale = optimizer.global_clipnorm * keras.ops.minimum(1.0 / norm, 1.0 / optimizer.global_clipnorm)
        scale += norm - norm  # as Keras: what is not finite makes everything not a number
        return [None if gradient is None else gradient * scale for gradient in grads]

    return _clip_gradients


def _finite_everywhere(optimizer: Any, collectives: GraphCollectives) -> Function:
    """In place of Keras's `check_finite`: gradients are finite if those of all stages are."""
    keras_check = optimizer.check_finite

    @as_written
    def check_finite(grads: Any) -> Any:
        [everywhere] = collectives.all_reduce([tf.cast(keras_check(grads), tf.int32)], Reduction.MIN)
        return tf.cast(everywhere, tf.bool)

    return check_finite
