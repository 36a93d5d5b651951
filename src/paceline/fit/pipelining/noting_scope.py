"""A `keras.StatelessScope` that knows which variables have been assigned in it."""

from typing import Any

import keras


class NotingScope(keras.StatelessScope):  # type: ignore[misc]  # Keras is untyped
    """Notes which variables are assigned."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.updated: dict[int, Any] = {}

    def add_update(self, update: Any) -> None:
        """Keras assigns."""
        self.updated[id(update[0])] = update[0]
        super().add_update(update)
