"""`train_on_batch`, `test_on_batch` and `predict_on_batch`: each rank computes its rows of the batch given to all."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from paceline.data.slicing import local_slice
from paceline.fit.strategies import paceline_strategy_of

Function = Callable[..., Any]

_BATCHED = ("x", "y", "sample_weight")


def on_local_rows(keras_method: Function) -> Function:
    """A Keras method on one batch that takes the global batch, and returns what one worker would. Collective."""
    signature = inspect.signature(keras_method)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = paceline_strategy_of(self)
        if strategy is None or strategy.world.size == 1:
            return keras_method(self, *args, **kwargs)
        arguments = signature.bind(self, *args, **kwargs)
        arguments.apply_defaults()
        for name in arguments.arguments.keys() & set(_BATCHED):
            arguments.arguments[name] = _local_rows(arguments.arguments[name], strategy.world)
        return keras_method(*arguments.args, **arguments.kwargs)

    return method


def _local_rows(batch: Any, world: Any) -> Any:
    def rows(leaf: Any) -> Any:
        if not isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) and not hasattr(leaf, "shape"):
            return leaf
        if len(leaf.shape) == 0:
            return leaf
        begin, end = local_slice(int(leaf.shape[0]), world.rank, world.size)
        return leaf[begin:end]

    return None if batch is None else keras.tree.map_structure(rows, batch)
