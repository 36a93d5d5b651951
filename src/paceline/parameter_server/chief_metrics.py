"""The metrics of a model on the chief: what steps have added is added here, and results are read here.

Each is one graph. Operation by operation, the results of a few metrics cost the chief milliseconds a step.
"""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.parameter_server.step_trace import OfMetric


class ChiefMetrics:
    """Of one kind of execution.

    Args:
        variables: To which steps add, in the order of the vector that comes back.
        wanted: What metrics say that a step returns.
    """

    def __init__(self, variables: Sequence[Any], wanted: Sequence[OfMetric]) -> None:
        self._variables = variables
        self._wanted = wanted
        sizes = [variable.shape.num_elements() for variable in variables]
        self._sizes = sizes
        self.num_sums = sum(sizes)
        """The length of the vector."""

    def add(self, sums: Any) -> None:
        """Adds what steps have added to zero: float64 vector of `num_sums` numbers."""
        if self._variables:
            self._add(tf.constant(sums, tf.float64))

    def results(self) -> list[Any]:
        """What the metrics say now, in the order of `wanted`."""
        return list(self._read()) if self._wanted else []

    # Concrete functions: TensorFlow warns of functions that are traced often, and takes those of all objects for one.

    @functools.cached_property
    def _add(self) -> Any:
        return tf.function(self._added, autograph=False).get_concrete_function(
            tf.TensorSpec([self.num_sums], tf.float64)
        )

    @functools.cached_property
    def _read(self) -> Any:
        return tf.function(self._results, autograph=False).get_concrete_function()

    def _added(self, sums: Any) -> None:
        for variable, part in zip(self._variables, tf.split(sums, self._sizes), strict=True):
            value = variable._value
            value.assign_add(tf.reshape(tf.cast(part, value.dtype), value.shape), read_value=False)

    def _results(self) -> list[Any]:
        results: dict[int, Any] = {}
        for one in self._wanted:
            if id(one.metric) not in results:
                results[id(one.metric)] = one.metric.result()
        found = [results[id(one.metric)] for one in self._wanted]
        return [
            as_it_is(result if one.key is None else result[one.key])
            for one, result in zip(self._wanted, found, strict=True)
        ]


def as_it_is(value: Any) -> Any:
    """The value of a variable now, if a metric's `result` is one; anything else itself."""
    return tf.identity(value.value) if isinstance(value, keras.Variable) else value
