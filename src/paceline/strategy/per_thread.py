"""What a thread is doing, told to code that TensorFlow or Keras calls on it in between, without an argument for it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class PerThread(threading.local, Generic[T]):
    """A value that each thread has for itself.

    >>> depth = PerThread(0)
    >>> with depth.replaced(1):
    ...     depth.value
    1
    >>> depth.value
    0

    Args:
        value: With which each thread begins.
    """

    def __init__(self, value: T) -> None:
        self.value = value

    @contextmanager
    def replaced(self, value: T) -> Iterator[None]:
        """While this lasts, this thread has another value."""
        before, self.value = self.value, value
        try:
            yield
        finally:
            self.value = before
