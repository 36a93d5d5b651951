"""`train_on_batch`, `test_on_batch` and `predict_on_batch`: each rank computes its rows of the batch."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.group import Group
from paceline.data.batch_rows import differing_rows, local_slice, named_components
from paceline.fit.strategies import paceline_strategy_of
from paceline.fit.unbatched import check_elements
from paceline.fit.whole_batches import WholeBatch, expected

Function = Callable[..., Any]

_BATCHED = ("x", "y", "sample_weight")


def on_local_rows(keras_method: Function) -> Function:
    """A Keras method on one batch that takes the global batch, and returns what one worker would. Collective."""
    signature = inspect.signature(keras_method)
    step = keras_method.__name__.replace("on_batch", "step")

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = paceline_strategy_of(self)
        if strategy is None or strategy.group.size == 1:
            return keras_method(self, *args, **kwargs)
        arguments = signature.bind(self, *args, **kwargs)
        arguments.apply_defaults()
        batch = {name: arguments.arguments[name] for name in _BATCHED if name in arguments.arguments}
        check_elements(self, _checked(batch), strategy, step)
        arguments.arguments.update({name: _local_rows(one, strategy.group) for name, one in batch.items()})
        with expected(WholeBatch()):
            return keras_method(*arguments.args, **arguments.kwargs)

    return method


def _checked(batch: dict[str, Any]) -> tuple[Any, ...]:
    """The specs of the parts of a batch.

    Raises:
        ValueError: they differ in their number of rows.
    """
    pairs = [pair for name, one in batch.items() for pair in named_components(one, name) if _has_rows(pair[1])]
    if told := differing_rows([(name, tuple(leaf.shape)) for name, leaf in pairs]):
        raise ValueError(told)
    return tuple(keras.tree.map_structure(_spec, one) for one in batch.values())


def _spec(leaf: Any) -> Any:
    return tf.TensorSpec(leaf.shape, leaf.dtype) if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else None


def _has_rows(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and len(leaf.shape) > 0


def _local_rows(batch: Any, group: Group) -> Any:
    def rows(leaf: Any) -> Any:
        if not isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) and not hasattr(leaf, "shape"):
            return leaf
        if len(leaf.shape) == 0:
            return leaf
        begin, end = local_slice(int(leaf.shape[0]), group.rank, group.size)
        return leaf[begin:end]

    return None if batch is None else keras.tree.map_structure(rows, batch)
