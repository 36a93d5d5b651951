"""The gradients of a batch, added up in place: a stage never holds a second set of what its weights take.

A graph that took the sums so far and returned new ones would hold both, and so a gradient of each weight more than one
process. Here each gradient is added to its sum, and freed, as soon as it is there.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.strategy.compat import ResourceVariable


class GradientSums:
    """The sums of one stage."""

    def __init__(self) -> None:
        self._sums: dict[int, Any] = {}

    def begin(self, weights: Sequence[Any]) -> list[Any]:
        """TensorFlow variables with the sums of a batch that begins: 0 for each of the Keras variables `weights`."""
        sums = [self._of(weight) for weight in weights]
        for total, weight in zip(sums, weights, strict=True):
            total.assign(tf.zeros(weight.shape, total.dtype), read_value=False)
        return sums

    def release(self) -> None:
        """The batch is over: gives the memory back."""
        for total in self._sums.values():
            total.assign(tf.zeros([], total.dtype), read_value=False)

    def _of(self, weight: Any) -> Any:
        if id(weight) not in self._sums:
            nothing = tf.zeros([], weight._value.dtype)
            with tf.init_scope():
                self._sums[id(weight)] = ResourceVariable(nothing, trainable=False, shape=tf.TensorShape(None))
        return self._sums[id(weight)]
