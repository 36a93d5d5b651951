"""Calls of traced functions with as little Python as possible.

What `tf.function` gives binds, casts and checks its arguments in Python before each call: 60 to 250 microseconds, by
their number. A stage makes some calls for each micro-batch, with tensors that are known to fit.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.strategy.compat import call_config


class DirectFunction:
    """A concrete function of flat tensors.

    Args:
        function: Concrete.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._captured = list(function.captured_inputs)
        self._dtypes = [output.dtype for output in function.outputs]

    def __call__(self, *arguments: Any) -> list[Any]:
        """The outputs, flat. Eager.

        Args:
            arguments: Tensors of the dtypes and shapes for which it has been traced, one for each input.
        """
        outputs = tf.raw_ops.StatefulPartitionedCall(
            args=[*arguments, *self._captured], Tout=self._dtypes, f=self._function, config_proto=call_config()
        )
        return list(outputs) if self._dtypes else []

    def packed(self, outputs: list[Any]) -> Any:
        """Flat outputs in the structure that the traced Python function has returned."""
        return tf.nest.pack_sequence_as(self._function.structured_outputs, outputs)


def traced(function: Callable[..., Any], *specs: Sequence[Any]) -> DirectFunction:
    """Traces `function` for lists of tensors of these specs, once. Called with all tensors, flat."""
    return DirectFunction(tf.function(function, autograph=False).get_concrete_function(*map(list, specs)))
