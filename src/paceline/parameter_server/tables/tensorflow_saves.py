"""Tables in what TensorFlow writes: in a checkpoint and in a SavedModel, a divided variable is in one piece."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from paceline.parameter_server.tables.sharded_weights import is_divided, joined, put_into, shards_of

Function = Callable[..., Any]


def in_checkpoint(keras_serialize: Function) -> Function:
    """Keras's `Variable._serialize_to_tensors`, of which `tf.train.Checkpoint` consists."""

    def _serialize_to_tensors(self: Any) -> Any:
        if is_divided(self):
            return {"VARIABLE_VALUE": tf.convert_to_tensor(self._value)}
        return keras_serialize(self)

    return _serialize_to_tensors


def from_checkpoint(keras_restore: Function) -> Function:
    """Keras's `Variable._restore_from_tensors`, the opposite."""

    def _restore_from_tensors(self: Any, restored_tensors: Any) -> Any:
        if not is_divided(self):
            return keras_restore(self, restored_tensors)
        self.assign(tf.ensure_shape(restored_tensors["VARIABLE_VALUE"], self.shape))
        return self._value

    return _restore_from_tensors


@contextmanager
def in_one_piece(model: Any) -> Iterator[None]:
    """While this lasts, the tables of a model are in one piece, on the chief. No step runs meanwhile."""
    tables = [variable for variable in joined(model.weights) if is_divided(variable)]
    before = [(variable, variable._value, shards_of(variable)) for variable in tables]
    try:
        for variable, _, _ in before:
            whole = tf.Variable(variable.numpy(), trainable=variable.trainable, name=variable.name)
            put_into(variable, whole, ())
        yield
    finally:
        for variable, value, shards in before:
            put_into(variable, value, shards)
