"""Looks rows up in variables on parameter servers: only these rows are read, in each shard its own.

    ids ──► shard and place in it ──► each server gathers its rows ──► stitched together in the order of the ids

Keras's `ops.take`, which its Embedding layer calls, and `tf.gather` would read the whole variable first.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from paceline.fit.compat import in_stateless_scope
from paceline.parameter_server.tables.sharded_weights import shards_of
from paceline.strategy.compat import ON_SERVERS

Function = Callable[..., Any]


def taken(keras_take: Function) -> Function:
    """`take` of Keras's TensorFlow backend: along the rows of a variable on servers, it reads these rows only."""

    def take(x: Any, indices: Any, axis: int | None = None) -> Any:
        if axis != 0 or not is_on_servers(x) or isinstance(indices, tf.SparseTensor):
            return keras_take(x, indices, axis)
        if isinstance(indices, tf.RaggedTensor):
            return tf.ragged.map_flat_values(lambda ids: looked_up(x, ids), indices)
        return looked_up(x, keras.ops.convert_to_tensor(indices))

    return take


class SparseRead:
    """`keras.Variable.sparse_read`, which `tf.gather` calls on what has one: variables on servers."""

    def __get__(self, variable: Any, owner: type) -> Function:
        if not is_on_servers(variable):
            raise AttributeError(f"{owner.__name__!r} object has no attribute 'sparse_read'")

        def sparse_read(indices: Any, name: str | None = None) -> Any:
            del name
            return looked_up(variable, tf.convert_to_tensor(indices))

        return sparse_read


def is_on_servers(variable: Any) -> bool:
    """Whether `variable` is a Keras variable that lies on parameter servers, and that no scope stands in for."""
    return (
        isinstance(variable, keras.Variable)
        and isinstance(getattr(variable, "_value", None), ON_SERVERS)
        and not in_stateless_scope()
    )


def looked_up(variable: Any, ids: Any) -> Any:
    """Rows of `variable`, in the dtype in which a layer computes.

    Args:
        variable: A Keras variable on servers, of the shape [rows, …].
        ids: Integers of any shape; a negative one counts from the end.

    Returns:
        A tensor of the shape of `ids`, followed by that of a row. Its gradient is a `tf.IndexedSlices` with one row for
        each id, as for a variable in one process: also for an id that comes twice.
    """
    num_rows = variable.shape[0]
    ids = tf.where(ids < 0, ids + tf.cast(num_rows, ids.dtype), ids)
    shards = shards_of(variable)
    if not shards:
        return variable._maybe_autocast(variable._value.sparse_read(ids))
    flat = tf.reshape(ids, [-1])
    numbers, places = places_of(flat, num_rows, len(shards))
    orders = tf.dynamic_partition(tf.range(tf.size(flat)), numbers, len(shards))
    places_by_shard = tf.dynamic_partition(places, numbers, len(shards))
    rows = tf.dynamic_stitch(
        orders, [shard._value.sparse_read(own) for shard, own in zip(shards, places_by_shard, strict=True)]
    )
    rows = tf.reshape(rows, tf.concat([tf.shape(ids), variable.shape[1:]], 0))
    rows.set_shape(ids.shape.concatenate(variable.shape[1:]))
    return variable._maybe_autocast(rows)


def places_of(ids: Any, num_rows: int, num_shards: int) -> tuple[Any, Any]:
    """For each of `ids` the number of its shard (int32), and its row in it, as `row_ranges` divides them.

    One that is out of range gets a place out of the range of a shard: reading it fails as it would in one process.
    """
    base, extra = divmod(num_rows, num_shards)
    numbers = tf.maximum(ids // (base + 1), (ids - extra) // base)
    numbers = tf.clip_by_value(numbers, 0, num_shards - 1)
    begins = numbers * base + tf.minimum(numbers, extra)
    return tf.cast(numbers, tf.int32), ids - begins
