"""Adds to variables on parameter servers in one operation.

Keras adds in two: it reads a variable and assigns the sum. Between the two another worker may assign its own sum, and
one of the two updates is lost. `optimizer.iterations` is counted this way.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from paceline.fit.compat import in_stateless_scope
from paceline.strategy.compat import ON_SERVERS

Function = Callable[..., Any]


def added(keras_assign_add: Function) -> Function:
    """Keras's `Variable.assign_add`, atomic for a variable on parameter servers."""
    return _at_once(keras_assign_add, "assign_add")


def subtracted(keras_assign_sub: Function) -> Function:
    """Keras's `Variable.assign_sub`, atomic for a variable on parameter servers."""
    return _at_once(keras_assign_sub, "assign_sub")


def _at_once(keras_assign: Function, name: str) -> Function:
    def assign(self: Any, value: Any) -> Any:
        if not isinstance(self._value, ON_SERVERS) or in_stateless_scope():
            return keras_assign(self, value)
        value = keras.ops.convert_to_tensor(value, dtype=self._value.dtype.name)
        return getattr(self._value, name)(tf.broadcast_to(value, self._value.shape))

    return assign
