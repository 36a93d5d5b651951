"""Gradients, where a script takes them and where an optimizer gets them.

Gradients that are taken are noted (`replica.note_gradients`). An optimizer that gets them is in one of four places:

    a trainer's step, or a function of a loop   traced as one worker has it, and divided as a whole: nothing to do here
    an eager loop that names no strategy        all ranks apply the chief's gradients (`own_loops.py`)
    a step of `strategy.run`                    the gradients of the replicas are summed (`replica_loops/`)
    a step of a single worker                   its update becomes loops (`updates_in_loops.py`)
"""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from paceline.fit import own_functions, own_loops, updates_in_loops
from paceline.fit.engine import engine_for
from paceline.fit.replica import current_replica, note_gradients, refuse_lonely_step
from paceline.fit.replica_loops import gradient_sums
from paceline.strategy.as_one_worker import is_as_one_worker
from paceline.strategy.base import SynchronousStrategy

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
        variables = None if trainable_variables is None else list(trainable_variables)
        engine_for(getattr(self, "_distribution_strategy", None)).before_update(self, variables)
        replica = current_replica()
        if replica is None:
            refuse_lonely_step()
            is_loop = own_loops.run_alike()
            if tf.executing_eagerly() and (is_loop or is_as_one_worker()):
                update = own_loops.updated_eagerly if is_loop else own_loops.updated_alike
                return update(self, list(grads), lambda gradients: keras_apply(self, gradients, variables))
            if is_loop:
                own_functions.note_update()
            if updates_in_loops.are_traced():
                return updates_in_loops.applied(self, list(grads), variables, keras_apply)
            return keras_apply(self, grads, variables)
        return gradient_sums.applied(self, list(grads), variables, keras_apply, replica)

    return apply


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
