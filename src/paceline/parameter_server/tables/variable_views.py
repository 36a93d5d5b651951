"""What an optimizer's own code gets in the place of a variable: some of its rows, or all of its shards as one.

An optimizer reads a variable as a tensor and calls `assign`, `assign_add`, `assign_sub` or, for a sparse gradient,
`scatter_…`. A stand-in does these on the part of the variable that it stands for. Nothing is kept between two of them:
what one worker has written, another reads next.

An addition is made by the server in one operation that locks the variable. Two workers that add to one row at once both
add. What is assigned replaces what was there, as in a variable that nobody has divided.
"""

import operator
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_OPERATORS = ("add", "sub", "mul", "truediv", "pow")


class VariableView:
    """A part of a variable.

    Args:
        variable: A Keras variable, the part of which an optimizer is to see.
    """

    def __init__(self, variable: Any) -> None:
        self.of = variable
        self.dtype = tf.as_dtype(variable._dtype)
        self.name = variable.name
        self.path = variable.path
        self.trainable = variable.trainable
        self.constraint = None
        self.overwrite_with_gradient = False

    @property
    def value(self) -> "VariableView":
        """Itself: what an optimizer assigns to in the place of a Keras variable's tensor."""
        return self

    @property
    def device(self) -> str | None:
        """Where an update is to be computed; None: wherever."""
        raise NotImplementedError

    def read(self) -> Any:
        """The value now, a tensor."""
        raise NotImplementedError

    def assign(self, value: Any) -> None:
        """Replaces the value."""
        raise NotImplementedError

    def assign_add(self, value: Any) -> None:
        """Adds to the value."""
        raise NotImplementedError

    def assign_sub(self, value: Any) -> None:
        """Subtracts from the value."""
        self.assign_add(-tf.convert_to_tensor(value, self.dtype))

    def scatter_add(self, slices: tf.IndexedSlices) -> None:
        """Adds to the rows that `slices` names, of those that this stands for."""
        raise NotImplementedError

    def scatter_sub(self, slices: tf.IndexedSlices) -> None:
        """Subtracts from rows."""
        self.scatter_add(tf.IndexedSlices(-slices.values, slices.indices))

    def scatter_update(self, slices: tf.IndexedSlices) -> None:
        """Replaces rows."""
        raise NotImplementedError

    @property
    def shape(self) -> tf.TensorShape:
        """Of the part."""
        raise NotImplementedError

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        return tf.convert_to_tensor(self.read(), dtype, name=name)

    def __neg__(self) -> Any:
        return -self.read()


def _forward(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: function(self.read(), other.read() if isinstance(other, VariableView) else other)


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: function(other, self.read())


for _name in _OPERATORS:
    setattr(VariableView, f"__{_name}__", _forward(getattr(operator, _name)))
    setattr(VariableView, f"__r{_name}__", _reflected(getattr(operator, _name)))


class RowView(VariableView):
    """Some rows of a variable that lies on one server, as a small table.

    Args:
        variable: A Keras variable in one piece: one that is not divided, or a shard.
        ids: Its rows, each once, int64.
    """

    def __init__(self, variable: Any, ids: Any) -> None:
        super().__init__(variable)
        self._ids = ids
        self._handle = variable._value.handle
        self._unique_id = variable._value._unique_id

    @property
    def device(self) -> str | None:
        """The server of the variable."""
        device: str = self.of._value.device
        return device

    @property
    def shape(self) -> tf.TensorShape:
        """As many rows as ids."""
        return tf.TensorShape([None, *self.of.shape[1:]])

    def read(self) -> Any:
        """The rows now."""
        rows = tf.raw_ops.ResourceGather(resource=self._handle, indices=self._ids, dtype=self.dtype)
        rows.set_shape(self.shape)
        return rows

    # Of TensorFlow's operations on rows only those named "Nd" lock the variable: `tf.Variable.scatter_add` lets two
    # workers that add to one row at once lose one of the two additions.

    def assign(self, value: Any) -> None:
        """Replaces the rows."""
        tf.raw_ops.ResourceScatterNdUpdate(
            ref=self._handle, indices=self._ids[:, None], updates=tf.convert_to_tensor(value, self.dtype)
        )

    def assign_add(self, value: Any) -> None:
        """Adds to the rows."""
        value = tf.convert_to_tensor(value, self.dtype)
        tf.raw_ops.ResourceScatterNdAdd(ref=self._handle, indices=self._ids[:, None], updates=value)

    def scatter_add(self, slices: tf.IndexedSlices) -> None:
        """Adds to some of the rows."""
        ids = tf.gather(self._ids, slices.indices)
        tf.raw_ops.ResourceScatterNdAdd(ref=self._handle, indices=ids[:, None], updates=slices.values)

    def scatter_update(self, slices: tf.IndexedSlices) -> None:
        """Replaces some of the rows."""
        ids = tf.gather(self._ids, slices.indices)
        tf.raw_ops.ResourceScatterNdUpdate(ref=self._handle, indices=ids[:, None], updates=slices.values)


class FullView(VariableView):
    """All shards of a divided variable as one, computed on the worker: exact for every optimizer, and slow.

    Args:
        variable: A divided Keras variable.
    """

    def __init__(self, variable: Any) -> None:
        super().__init__(variable)
        self._unique_id = variable._value._unique_id

    @property
    def device(self) -> str | None:
        """None: the worker computes."""
        return None

    @property
    def shape(self) -> tf.TensorShape:
        """The variable's."""
        return tf.TensorShape(self.of.shape)

    def read(self) -> Any:
        """All shards, one after the other."""
        return tf.convert_to_tensor(self.of._value)

    def assign(self, value: Any) -> None:
        """Replaces all shards."""
        self.of._value.assign(tf.convert_to_tensor(value, self.dtype))

    def assign_add(self, value: Any) -> None:
        """Adds to all shards."""
        self.of._value.assign_add(tf.convert_to_tensor(value, self.dtype))

    def scatter_add(self, slices: tf.IndexedSlices) -> None:
        """Adds to rows."""
        self.of._value.scatter_add(slices)

    def scatter_update(self, slices: tf.IndexedSlices) -> None:
        """Replaces rows."""
        self.of._value.scatter_update(slices)
