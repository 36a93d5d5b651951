"""Summaries in a step that ranks divide (`divided_steps.py`): the chief writes them, but all ranks trace them.

Keras's `TensorBoard` writes on the chief only. Where no writer is the default, `tf.summary.scalar` puts nothing into a
graph: the other ranks would trace another step than the chief, and send other messages. So there is a stand-in where
they trace, and no writer elsewhere.
"""

import functools
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class _Here(threading.local):
    def __init__(self) -> None:
        self.steps: list[Any] = []
        """Of this thread's followers' writers that are the default: the steps that they were given."""


_here = _Here()


class FollowersWriter(tf.summary.SummaryWriter):  # type: ignore[misc]  # a TensorFlow class, untyped
    """The writer of a rank other than the chief: nothing is written."""

    def as_default(self, step: Any = None) -> "_Default":
        """The context in which steps are traced with a writer."""
        return _Default(step)

    def init(self) -> None:
        """There is nothing to open."""

    def flush(self) -> None:
        """Nothing was written."""

    def close(self) -> None:
        """There is nothing to close."""


class _Default:
    def __init__(self, step: Any) -> None:
        self._step = step

    def __enter__(self) -> None:
        _here.steps.append(self._step)

    def __exit__(self, *raised: object) -> None:
        _here.steps.pop()


@contextmanager
def traced_as_on_chief() -> Iterator[None]:
    """While this lasts, summaries are traced on a follower if the chief traces them. Outside of all graphs."""
    if not _here.steps:
        yield
        return
    with _stand_in().as_default(_here.steps[-1]):
        yield


@functools.cache
def _stand_in() -> Any:
    """A writer for graphs, to whose file nobody writes."""
    with tempfile.TemporaryDirectory() as folder:
        return tf.summary.create_file_writer(folder)
