"""Weights as layers make them: the engine in whose scope that happens may have them elsewhere."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.fit.engine import engine_for
from paceline.fit.replica_loops.assignments import note_aggregation

Function = Callable[..., Any]


def added(keras_add_weight: Function) -> Function:
    """Keras's `Layer.add_weight`."""

    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        engine = engine_for(tf.distribute.get_strategy())
        weight = engine.weight(self, lambda: keras_add_weight(self, *args, **kwargs))
        note_aggregation(weight)
        return weight

    return add_weight
