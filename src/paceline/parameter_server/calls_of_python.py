"""Refuses steps that call Python: a worker has none of the script's functions.

TensorFlow finds the function of a `tf.py_function` in a table of the process that has built the graph. A worker is
another process: there the step would fail, or silently return nothing.
"""

import re
from typing import Any

from paceline.fit.compat import all_layers
from paceline.strategy.scheduled_functions import PYTHON_CALLS, operations_of


def check_no_python(graph: Any, model: Any, what: str = "") -> None:
    """Before anything is scheduled.

    Args:
        graph: Of an execution.
        model: Whose step it is.
        what: What the graph is, if it is no step.

    Raises:
        ValueError: a step calls Python; the layer is named.
    """
    for name, types in operations_of(graph):
        if types in PYTHON_CALLS:
            layers = _layers_in(name, [layer.name for layer in all_layers(model)])
            if not what:
                what = f"the layer {layers[-1]!r}" if layers else f"the step of {type(model).__name__} ({name})"
            raise ValueError(
                f"{what} calls Python (tf.py_function or tf.numpy_function), but runs on workers, which do not have "
                "the script's functions. Use TensorFlow's operations there, or call Python in a dataset that is given "
                "to fit as it is: the chief reads it. [python-in-step]"
            )


def _layers_in(name: str, layers: list[str]) -> list[str]:
    """The layers in whose scopes an operation is, innermost last; a scope may have a number behind the layer's name."""
    scopes = name.split("/")[:-1]
    return [layer for scope in scopes for layer in layers if re.fullmatch(rf"{re.escape(layer)}(_\d+)?", scope)]
