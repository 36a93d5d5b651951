"""A Keras variable that is divided by rows over parameter servers, and whole for whoever reads or assigns it.

    layer.add_weight ─► keras.Variable ── value ─► TensorFlow's ShardedVariable ─► a tf.Variable on each server
                             │                                                           ▲
                             └── `shards_of`: a Keras variable for each ─────────────────┘

The whole variable is what a layer, an optimizer and a snapshot have: one shape, one value, one place in a file. The
shards are what servers store. `layer.weights` lists the shards, as TensorFlow's guide expects; `trainable_variables`,
`get_weights` and `save` have the whole.

Only the weights of layers are divided, and what an optimizer keeps beside them. A metric's variable is small, and all
of it is read together.
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.fit import compat
from paceline.parameter_server.tables.outside_graph import outside_graph
from paceline.strategy.compat import ShardedVariable
from paceline.strategy.parameter_server import ParameterServerStrategy
from paceline.strategy.partitioning import SwitchedPartitioner, row_ranges
from paceline.strategy.per_thread import PerThread

Function = Callable[..., Any]

_SHARDS, _WHOLE, _OF_TABLE = "_paceline_shards", "_paceline_whole", "_paceline_of_table"


_num_rows = PerThread[int | None](None)
"""Of the table that the layer looks up which makes a weight now; 0: it has none; None: no layer makes one."""

_like = PerThread[Any](None)
"""The divided variable beside whose shards an optimizer's variable is made now."""


def shards_of(variable: Any) -> list[Any]:
    """The Keras variables of the shards, in the order of their rows; empty where `variable` is in one piece."""
    return list(getattr(variable, _SHARDS, ()))


def whole_of(variable: Any) -> Any:
    """The divided variable that `variable` is a shard of; else `variable` itself."""
    return getattr(variable, _WHOLE, variable)


def is_divided(variable: Any) -> bool:
    """Whether `variable` is a Keras variable in shards."""
    return bool(shards_of(variable))


def put_into(variable: Any, value: Any, shards: Sequence[Any]) -> None:
    """Gives a Keras variable another variable of TensorFlow's: in these `shards`; without any, in one piece."""
    variable._value = value
    setattr(variable, _SHARDS, list(shards))


# Making them.


def made_by_layer(layer: Any, add: Callable[[], Any]) -> Any:
    """A weight that a layer makes by `add` in the scope of a strategy: it may be divided."""
    num_rows = layer.input_dim if isinstance(layer, keras.layers.Embedding) else 0
    with _num_rows.replaced(num_rows):
        weight = add()
    if weight._value is None:  # Keras only finds out shapes for now, and gives it a value later
        setattr(weight, _OF_TABLE, num_rows)
    return weight


def made_beside(keras_add: Function) -> Function:
    """The optimizers' `add_variable_from_reference`: beside a divided variable, divided in the same way."""

    def add_variable_from_reference(self: Any, reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_divided(reference_variable):
            return keras_add(self, reference_variable, *args, **kwargs)
        with _like.replaced(reference_variable):
            return compat.BaseOptimizer.add_variable_from_reference(self, reference_variable, *args, **kwargs)

    return add_variable_from_reference


def build_in_scope(optimizer: Any, variables: Sequence[Any], strategy: Any) -> None:
    """Builds an optimizer in a step that is traced for a worker, as if the user had called `build` in the scope.

    Outside of the trace: slots are made on servers.
    """

    def build() -> None:
        with strategy.scope():
            optimizer.build(variables)

    outside_graph(build)


def initialized(keras_initialize: Function) -> Function:
    """Keras's `Variable._initialize_with_initializer`: where the partitioner says so, in shards.

    The initial value is the one that a variable in one piece would have had, whatever the number of shards. It is made
    on the chief, once, and each server is sent its rows.
    """

    def _initialize_with_initializer(self: Any, initializer: Function) -> None:
        strategy, shape = tf.distribute.get_strategy(), tuple(self._shape)
        partitioner = strategy.partitioner if isinstance(strategy, ParameterServerStrategy) else None
        like = _like.value
        if like is not None:
            beside = shards_of(like) if tuple(like.shape) == shape else [None]
        else:
            beside = [None] * _num_shards(partitioner, self, shape)
        with contextlib.nullcontext() if partitioner is None else partitioner.silenced():
            if len(beside) == 1:
                keras_initialize(self, initializer)
            else:
                divide(self, initializer(shape, dtype=self._dtype), beside)

    return _initialize_with_initializer


def _num_shards(partitioner: SwitchedPartitioner | None, variable: Any, shape: tuple[int, ...]) -> int:
    num_rows = getattr(variable, _OF_TABLE, _num_rows.value)
    if partitioner is None or num_rows is None:
        return 1
    is_table = shape[:1] == (num_rows,)  # an embedding has other weights, too: LoRA's, the scale of a quantization
    return partitioner.num_shards(variable.path, shape, variable._dtype, is_table=is_table)


def divide(variable: Any, value: Any, beside: Sequence[Any]) -> None:
    """Puts shards into `variable`.

    Args:
        variable: A Keras variable.
        value: The initial value of all of it, a tensor on the chief.
        beside: For each shard the Keras variable on whose server it is put; None: on the next server.
    """
    shards = []
    for number, (rows, other) in enumerate(zip(row_ranges(value.shape[0], len(beside)), beside, strict=True)):
        with _colocated(other):
            shards.append(
                tf.Variable(
                    value[rows.start : rows.stop],  # on the chief: a server would be sent the whole for that
                    dtype=variable._dtype,
                    trainable=variable.trainable,
                    name=f"{variable.name}/part_{number}",
                )
            )
    own = [_shard_variable(variable, shard, number) for number, shard in enumerate(shards)]
    put_into(variable, ShardedVariable(shards, name=variable.name), own)


def _colocated(other: Any) -> AbstractContextManager[Any]:
    if other is None:
        return contextlib.nullcontext()
    context: AbstractContextManager[Any] = tf.distribute.get_strategy().extended.colocate_vars_with(other.value)
    return context


def _shard_variable(whole: Any, shard: tf.Variable, number: int) -> Any:
    variable = _Shard(
        shard,
        dtype=whole._dtype,
        trainable=whole.trainable,
        autocast=whole._autocast,
        name=f"{whole.name}_part_{number}",
    )
    variable._path = f"{whole.path}/part_{number}"
    for own in (variable, shard):  # optimizers ask about either
        setattr(own, _WHOLE, whole)
    return variable


class _Shard(keras.Variable):  # type: ignore[misc]  # Keras is untyped
    """Trainable as long as the divided variable is: freezing a layer freezes all of it."""

    @property
    def trainable(self) -> bool:
        whole = whole_of(self)
        return bool(super().trainable if whole is self else whole.trainable)  # while it is being made, it has no whole


# Reading them whole.


def read_whole(keras_numpy: Function) -> Function:
    """Keras's `Variable.numpy`; of a divided one in one array, into which one shard after the other is read."""

    def numpy(self: Any) -> Any:
        return _array(self) if is_divided(self) else keras_numpy(self)

    return numpy


def converted(keras_array: Function) -> Function:
    """Keras's `Variable.__array__`, also of a divided one."""

    def __array__(self: Any, dtype: Any = None) -> Any:  # noqa: N807
        return np.asarray(_array(self), dtype) if is_divided(self) else keras_array(self, dtype)

    return __array__


def _array(variable: Any) -> Any:
    array = np.empty(tuple(variable.shape), tf.as_dtype(variable._dtype).as_numpy_dtype)
    shards = shards_of(variable)
    for rows, shard in zip(row_ranges(array.shape[0], len(shards)), shards, strict=True):
        array[rows.start : rows.stop] = shard.numpy()
    return array


# Listing them.


def listed(keras_weights: property) -> property:
    """Keras's `Layer.weights`, with the shards in the places of divided variables."""

    def weights(self: Any) -> list[Any]:
        listed = []
        for weight in keras_weights.fget(self):  # type: ignore[misc]
            listed += shards_of(weight) or [weight]
        return listed

    return property(weights, doc=keras_weights.__doc__)


def listed_whole(keras_property: property) -> property:
    """Keras's `Layer.trainable_weights` and its like, which are taken from `weights`, with divided variables whole."""

    def weights(self: Any) -> list[Any]:
        return joined(keras_property.fget(self))  # type: ignore[misc]

    return property(weights, doc=keras_property.__doc__)


def joined(variables: Sequence[Any]) -> list[Any]:
    """`variables` with each divided one whole, once, in the place of its first shard."""
    wholes = [whole_of(variable) for variable in variables]
    return [*{id(whole): whole for whole in wholes}.values()]


def got_whole(keras_get_weights: Function) -> Function:
    """Keras's `Layer.get_weights`: one array for each variable, however it is divided."""

    def get_weights(self: Any) -> list[Any]:
        weights = self.weights
        if all(whole_of(weight) is weight for weight in weights):
            return list(keras_get_weights(self))
        return [weight.numpy() for weight in joined(weights)]

    return get_weights


def set_whole(keras_set_weights: Function) -> Function:
    """Keras's `Layer.set_weights`: takes what `get_weights` gives."""

    def set_weights(self: Any, weights: Sequence[Any]) -> None:
        own = self.weights
        if all(whole_of(weight) is weight for weight in own):
            keras_set_weights(self, weights)
            return
        # Keras's own checks and messages, for a layer whose weights are these.
        keras_set_weights(_Weights(self.name, joined(own)), weights)

    return set_weights


class _Weights:
    """What Keras's `set_weights` asks of a layer."""

    def __init__(self, name: str, weights: list[Any]) -> None:
        self.name = name
        self.weights = weights
