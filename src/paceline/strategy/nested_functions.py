"""`tf.function`s that a step calls are built into it, and not traced by themselves.

TensorFlow traces a function once for each kind of arguments, and uses the trace wherever it is called. What Paceline
puts into a step belongs to that step: how many rows it has, which of its numbers are shares, what it has moved. A trace
that is kept from one step would carry the counts of that one into the others, or be out of their scope.

    in a graph                    its Python runs there, converted by AutoGraph as TensorFlow would trace it
    in an eager custom loop       a graph of its own, with the rows of its own arguments, as `strategy.run` makes one
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.strategy import compat, seams
from paceline.strategy.replica_context import PacelineReplicaContext
from paceline.strategy.seams import Seam

Function = Callable[..., Any]

_PolymorphicFunction = type(tf.function(lambda: None))
_call_apart: Function = _PolymorphicFunction.__call__


def install() -> None:
    """From now on, what a step of several replicas calls is built into it. Again: nothing."""
    if _PolymorphicFunction.__call__ is _call_apart:
        seams.install(rows())


def rows() -> list[Seam]:
    """The replacement."""
    why = "a step holds the functions that it calls: they have its rows"
    return [Seam(_PolymorphicFunction, "__call__", _built_in, why)]


def call_apart(function: Any, *args: Any) -> Any:
    """Calls a `tf.function` of Paceline's own, which holds a whole step."""
    return _call_apart(function, *args)


def _built_in(call: Function) -> Function:
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        context: Any = tf.distribute.get_replica_context()
        in_step = isinstance(context, PacelineReplicaContext) and context.num_replicas_in_sync > 1
        if not in_step or not _is_a_users(self):
            return call(self, *args, **kwargs)
        if not tf.executing_eagerly():
            return compat.for_graphs(self)(*args, **kwargs)
        return context.strategy.extended.call_as_own_graph(self, args, kwargs)

    return __call__


def _is_a_users(function: Any) -> bool:
    """Whether it is no function of a SavedModel, which nothing of Paceline has ever been in, and none of TensorFlow's.

    TensorFlow makes those for one call, to have a graph where there is none (`vectorized_map`).
    """
    module = getattr(function.python_function, "__module__", None) or ""
    return type(function) is _PolymorphicFunction and module.split(".")[0] != "tensorflow"
