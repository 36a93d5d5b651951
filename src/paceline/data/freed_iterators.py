"""Frees the iterators of datasets in threads of their own.

With `tf.data.AUTOTUNE`, each iterator has a thread that looks at its speed, at intervals that double up to a minute.
Who frees the iterator waits for this thread. TensorFlow (2.17 to 2.21) wakes the thread before it marks the iterator as
cancelled (`CancellationManager::StartCancel`, `Model::OptimizeLoop`), so a thread that looks too early sleeps for
another interval. Keras frees an iterator between two epochs: training stood still for as long as an epoch had taken,
also with arrays, of which Keras makes such datasets. Delete this file when TensorFlow marks first.
"""

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.data.compat import with_sources, writes_file


def freed_in_threads(dataset: Any) -> Any:
    """`dataset` to iterate over, whose iterators are freed in threads.

    As it is: anything else than a TensorFlow dataset, and one that writes a file. Whoever reads the file next may begin
    only when the file is closed.
    """
    if not isinstance(dataset, tf.data.Dataset) or any(map(writes_file, with_sources(dataset))):
        return dataset
    return Iterable(lambda: freed_in_thread(iter(dataset)))


class Iterable:
    """Has a function make its iterators."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __iter__(self) -> Any:
        return self._make()


def freed_in_thread(iterator: Any) -> Any:
    """An iterator over a TensorFlow dataset, which will be freed in a thread."""
    # No finalizer of `weakref`: it would hold the dataset, whose functions may hold the iterator, which then stays.
    kind: Any = type(iterator)
    iterator.__class__ = _freed_class(kind)
    return iterator


@functools.cache
def _freed_class(kind: Any) -> Any:
    """`kind`, whose instances are freed in threads."""
    return type(kind.__name__, (kind,), {"__del__": _clear_in_thread, "__module__": kind.__module__})


def _clear_in_thread(iterator: Any) -> None:
    """Drops what an iterator has had in a thread; TensorFlow lets other threads run meanwhile."""
    if sys.is_finalizing():  # no thread would start any more, and whoever started one would wait for ever
        return
    had = dict(vars(iterator))
    vars(iterator).clear()
    try:
        # The end of the process waits for the thread: TensorFlow must not be gone before.
        threading.Thread(target=had.clear, name="paceline frees an iterator").start()
    except RuntimeError:  # the process is ending, and starts no more threads
        had.clear()
