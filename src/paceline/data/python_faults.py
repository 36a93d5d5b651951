"""Exceptions of Python functions in an input pipeline, as they were raised.

TensorFlow hands on their text only, between several screens of its own.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from paceline.data.indexed.damaged_files import told_of_damage


class _Raised:
    """The exception that was raised last."""

    fault: Exception | None = None


_raised = _Raised()


def keeps_fault(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, for `tf.numpy_function`, whose exceptions are kept for `kept_fault_raised`."""

    @functools.wraps(function)
    def noted(*args: Any) -> Any:
        try:
            return function(*args)
        except StopIteration as fault:  # TensorFlow would take it for the end of the data
            _raised.fault = RuntimeError("StopIteration")
            raise _raised.fault from fault
        except Exception as fault:
            _raised.fault = fault
            raise

    return noted


@contextmanager
def kept_fault_raised() -> Iterator[None]:
    """An error of TensorFlow's in here that comes from a function that `keeps_fault` is raised as what that had raised.

    Raises:
        Exception: whatever the function has raised.
        ValueError: data are damaged, and the file is known (`damaged_files.py`).
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        if told := told_of_damage():
            raise ValueError(told) from error
        raise
    except tf.errors.OpError as error:
        fault = _raised.fault
        if fault is None or str(fault) not in str(error):
            raise
        raise fault from None
