"""`predict` returns all rows, in order, on every rank."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.strategy.base import SynchronousStrategy

Function = Callable[..., Any]


def gathered(keras_reduce: Function) -> Function:
    """Keras's `reduce_per_replica`, which for `predict` concatenates the ranks' rows. Collective then."""

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if isinstance(strategy, SynchronousStrategy):
            if reduction == "concat" and strategy.world.size > 1:
                return tf.nest.map_structure(strategy.extended.collectives.all_gather, values)
            return values
        return keras_reduce(values, strategy, reduction)

    return reduce_per_replica
