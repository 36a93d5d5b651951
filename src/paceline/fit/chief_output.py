"""One terminal, one voice: in a launched world the chief speaks for Keras.

Callbacks get the same logs on every rank, so all of them say the same ("Epoch 2: early stopping").
"""

import inspect
from collections.abc import Callable
from typing import Any

from paceline.comm.world import current_world
from paceline.fit.files.model_files import by_its_name
from paceline.fit.run import Run

Function = Callable[..., Any]


def is_quiet() -> bool:
    """Whether another rank speaks for this one."""
    world = current_world()
    return world.launched and not world.is_chief


def printed(keras_print: Function) -> Function:
    """Keras's `print_msg`, through which its callbacks speak, and exports."""

    def print_msg(message: Any, *args: Any, **kwargs: Any) -> Any:
        if Run.current() is not None and is_quiet():
            return None
        return keras_print(by_its_name(message), *args, **kwargs)

    return print_msg


def summarized(keras_summary: Function) -> Function:
    """`Model.summary`, printed once; a `print_fn` of the script's own is called on every rank."""
    signature = inspect.signature(keras_summary)

    def summary(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_quiet() and "print_fn" not in signature.bind(self, *args, **kwargs).arguments:
            return None
        return keras_summary(self, *args, **kwargs)

    return summary
