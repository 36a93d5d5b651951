"""Python in the middle of a graph, with as little as possible in between.

`tf.numpy_function` is the public way. On each call it parses NumPy's version once per result, goes through AutoGraph's
dispatcher, and makes and destroys a Python thread state: 50 us for one array and 200 us for ten, where this takes 14
and 16 (`benchmarks/all_reduce`). The operation is the same one, `tf.raw_ops.PyFunc`; only what it finds in TensorFlow's
registry differs.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.comm.group import Array
from paceline.strategy import compat

Function = Callable[..., list[Array]]

_thread = threading.local()


class RegisteredFunction(compat.EagerFunc):  # type: ignore[misc]  # a TensorFlow class, untyped
    """A Python function of TensorFlow's registry that is given its arguments as they are.

    The registry hands what a function of the base class returns straight to the operation.

    Args:
        function: Of the device and the arguments, which are arrays or eager tensors.
    """

    def __init__(self, function: Callable[[str, Sequence[Any]], Any]) -> None:
        self._function = function
        self.token = compat.python_functions.insert(self)
        """What an operation knows the function by."""
        _registered.append(self)

    def __call__(self, device: str, token: str, arguments: Sequence[Any]) -> Any:
        """What TensorFlow calls, on one of its threads."""
        del token
        return self._function(device, arguments)


class PythonCall(RegisteredFunction):
    """A Python function that graphs can call.

    Args:
        function: From arrays to contiguous arrays. TensorFlow lends the former for the time of the call, and adopts
            the memory of the latter where it is aligned.
    """

    def __init__(self, function: Function) -> None:
        def call(device: str, arguments: Sequence[Array]) -> list[Array]:
            del device
            keep_thread_state()
            return function(*arguments)

        super().__init__(call)

    def in_graph(self, tensors: list[Any]) -> list[Any]:
        """A stateful operation that calls the function; its results have the tensors' number and dtypes.

        Args:
            tensors: At least one; all on the CPU, or copied there.
        """
        with tf.device("/device:CPU:0"):
            results: list[Any] = tf.raw_ops.PyFunc(
                input=tensors, token=self.token, Tout=[tensor.dtype for tensor in tensors]
            )
        return results


_registered: list[RegisteredFunction] = []
"""Graphs may outlive the strategy that they were built with, and TensorFlow's registry holds its entries weakly."""


def keep_thread_state() -> None:
    """Keeps Python's state of this thread, which TensorFlow would make and destroy around each call."""
    if not getattr(_thread, "is_kept", False):
        _thread.is_kept = True
        ctypes.pythonapi.PyGILState_Ensure()
