"""The patch of `Dataset.shuffle`: another shuffle can draw from the same generator of seeds (`stages.py`)."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.data.compat import share_seeds_of


def with_shared_seeds(make: Callable[..., None]) -> Callable[..., None]:
    """The `__init__` of TensorFlow's dataset."""

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if tf.executing_eagerly():
            share_seeds_of(self)

    return made
