"""`train_on_batch`, `test_on_batch` and `predict_on_batch`: each rank computes its rows of the batch."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.group import Group
from paceline.data.batch_rows import differing_rows, local_slice, named_components
from paceline.fit.unbatched import check_elements
from paceline.fit.whole_batches import WholeBatch, expected
from paceline.strategy.base import SynchronousStrategy

Function = Callable[..., Any]


def on_local_rows(
    model: Any, method: str, arguments: dict[str, Any], keras_method: Function, strategy: SynchronousStrategy
) -> Any:
    """Calls a Keras method on one batch with this rank's rows of it; returns what one worker would. Collective.

    Args:
        model: Whose method.
        method: Its name.
        arguments: Of the call.
        keras_method: Takes the arguments.
        strategy: Whose replicas divide the batch.
    """
    names = ("x",) if method == "predict_on_batch" else ("x", "y", "sample_weight")
    batch = {name: arguments.get(name) for name in names}
    check_elements(model, _checked(batch), strategy, method.replace("on_batch", "step"))
    own_rows = {name: _local_rows(one, strategy.group) for name, one in batch.items()}
    with expected(WholeBatch()):
        return keras_method(**{**arguments, **own_rows})


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
