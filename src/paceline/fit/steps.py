"""Telling a trainer's step from a step of a custom loop: in the latter, users scale their losses themselves."""

import functools
from collections.abc import Callable
from typing import Any

from paceline.fit.replica import current_replica

Function = Callable[..., Any]


def marked_as_trainers(keras_make_function: Function) -> Function:
    """Keras's `TensorFlowTrainer._make_function`, whose step says that it is a trainer's."""

    def _make_function(self: Any, step_function: Function) -> Any:
        @functools.wraps(step_function)
        def step(data: Any) -> Any:
            replica = current_replica()
            if replica is not None:
                replica.rows.of_trainer = True
            return step_function(data)

        return keras_make_function(self, step)

    return _make_function
