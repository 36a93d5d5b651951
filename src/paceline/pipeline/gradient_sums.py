"""The gradients of a batch, added up in place: a stage never holds a second set of what its weights take.

A graph that took the sums so far and returned new ones would hold both, and so a gradient of each weight more than one
process. Here each gradient is added to its sum, and freed, as soon as it is there.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.pipeline.direct_calls import DirectFunction, traced
from paceline.strategy.compat import ResourceVariable


class GradientSums:
    """The sums of one stage."""

    def __init__(self) -> None:
        self._sums: dict[int, Any] = {}
        self._beginnings: dict[tuple[int, ...], DirectFunction] = {}

    def handles(self, weights: Sequence[Any]) -> list[Any]:
        """Of the TensorFlow variables with the sums for the Keras variables `weights`."""
        return [self._of(weight).handle for weight in weights]

    def begin(self, weights: Sequence[Any]) -> None:
        """A batch begins: the sums for the Keras variables `weights` are 0."""

        def zero() -> list[Any]:
            for weight in weights:
                total = self._of(weight)
                total.assign(tf.zeros(weight.shape, total.dtype), read_value=False)
            return []

        key = tuple(map(id, weights))
        if key not in self._beginnings:
            self._beginnings[key] = traced(zero)
        self._beginnings[key]()

    def read(self, weights: Sequence[Any]) -> list[Any]:
        """In the graph of an update: the sums."""
        return [tf.ensure_shape(self._of(weight).read_value(), weight.shape) for weight in weights]

    def release(self, weights: Sequence[Any]) -> None:
        """At the end of the graph of an update: the batch is over, and the memory is given back."""
        for weight in weights:
            total = self._of(weight)
            total.assign(tf.zeros([], total.dtype), read_value=False)

    def _of(self, weight: Any) -> Any:
        if id(weight) not in self._sums:
            with tf.init_scope():
                nothing = tf.zeros([], weight._value.dtype)
                self._sums[id(weight)] = ResourceVariable(nothing, trainable=False, shape=tf.TensorShape(None))
        return self._sums[id(weight)]
