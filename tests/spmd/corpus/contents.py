"""What tensors hold as NumPy values, handles of variables and lists of tensors included, and the way back."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import handle_data_util


@dataclass(frozen=True)
class Items:
    """What a list of tensors holds; None where nothing is set."""

    dtype: str
    element_shape: np.ndarray
    """What the list says about them all: -1 for a size that differs, and for all of it."""
    arrays: tuple[np.ndarray | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its length, then the dimensions of its first tensor."""
        return (len(self.arrays), *next((array.shape for array in self.arrays if array is not None), ()))


Content = np.ndarray | Items | None
"""Of a variable's handle, the variable's value. None: what has no such value, as tables and iterators."""


def content(tensor: tf.Tensor, items: str | None = None) -> Content:
    """What a tensor holds; of a list of tensors, given their type."""
    if tensor.dtype == tf.resource:
        return _held(tensor)
    if tensor.dtype == tf.variant:
        return None if items is None else _items(tensor, items)
    return np.asarray(tensor.numpy())


def type_of_items(symbol: tf.Tensor) -> str | None:
    """The type of the tensors in a list, as tracing knows it."""
    if symbol.dtype != tf.variant:
        return None
    data = handle_data_util.get_resource_handle_data(symbol)
    kinds = {tf.as_dtype(item.dtype).name for item in data.shape_and_type} if data.is_set else set()
    return kinds.pop() if len(kinds) == 1 else None


def tensor(value: Content, dtype: str) -> tf.Tensor:
    """A tensor that holds this; a handle belongs to a new variable."""
    if dtype == "resource":
        variable = tf.Variable(value)
        variable.handle.variable = variable  # which lives as long as its handle
        return variable.handle
    if isinstance(value, Items):
        count = len(value.arrays)
        made = tf.raw_ops.TensorListReserve(
            element_shape=value.element_shape, num_elements=count, element_dtype=value.dtype
        )
        for index, array in enumerate(value.arrays):
            if array is not None:
                made = tf.raw_ops.TensorListSetItem(input_handle=made, index=index, item=array)
        return made
    return tf.constant(value, dtype)


@contextlib.contextmanager
def kept(tensors: Sequence[tf.Tensor]) -> Iterator[None]:
    """Variables among these handles hold afterwards what they held before."""
    before = [(handle, _held(handle)) for handle in tensors if handle.dtype == tf.resource]
    yield
    for handle, value in before:
        if value is not None:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def _held(handle: tf.Tensor) -> np.ndarray | None:
    data = handle._handle_data
    if data is None or len(data.shape_and_type) != 1:
        return None
    return np.asarray(tf.raw_ops.ReadVariableOp(resource=handle, dtype=data.shape_and_type[0].dtype).numpy())


def _items(handle: tf.Tensor, dtype: str) -> Items | None:
    if dtype in ("variant", "resource"):
        return None
    arrays: list[np.ndarray | None] = []
    for index in range(int(tf.raw_ops.TensorListLength(input_handle=handle))):
        try:
            item = tf.raw_ops.TensorListGetItem(input_handle=handle, index=index, element_shape=-1, element_dtype=dtype)
            arrays.append(np.asarray(item.numpy()))
        except tf.errors.InvalidArgumentError:
            arrays.append(None)
    element_shape = tf.raw_ops.TensorListElementShape(input_handle=handle, shape_type=tf.int32)
    return Items(dtype, element_shape.numpy(), tuple(arrays))
