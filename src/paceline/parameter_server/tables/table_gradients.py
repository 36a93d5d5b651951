"""Gradients of variables in shards: whole for whoever takes them, of each shard for the tape and for the update."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.parameter_server.tables.row_lookup import places_of
from paceline.parameter_server.tables.sharded_weights import is_divided, shards_of
from paceline.strategy.partitioning import row_ranges

Function = Callable[..., Any]


def taken(tape_gradient: Function) -> Function:
    """`tf.GradientTape.gradient`, which also takes the gradients of divided variables."""

    def gradient(self: Any, target: Any, sources: Any, *args: Any, **options: Any) -> Any:
        flat = tf.nest.flatten(sources)
        if not any(map(is_divided, flat)):
            return tape_gradient(self, target, sources, *args, **options)
        parts = [shards_of(source) or [source] for source in flat]
        taken = iter(tape_gradient(self, target, [part for of_one in parts for part in of_one], *args, **options))
        joined = []
        for source, of_one in zip(flat, parts, strict=True):
            gradients = [next(taken) for _ in of_one]
            joined.append(_joined(gradients, source) if is_divided(source) else gradients[0])
        return tf.nest.pack_sequence_as(sources, joined)

    return gradient


def _joined(gradients: Sequence[Any], whole: Any) -> Any:
    """The gradient of `whole` from those of its shards: None, a `tf.IndexedSlices` or a tensor, as they are."""
    if all(gradient is None for gradient in gradients):
        return None
    ranges = row_ranges(whole.shape[0], len(gradients))
    if all(gradient is None or isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
        pairs = [(gradient, rows) for gradient, rows in zip(gradients, ranges, strict=True) if gradient is not None]
        return tf.IndexedSlices(
            values=tf.concat([gradient.values for gradient, _ in pairs], 0),
            indices=tf.concat([tf.cast(gradient.indices, tf.int64) + rows.start for gradient, rows in pairs], 0),
            dense_shape=tf.constant(tuple(whole.shape), tf.int64),
        )
    row_shape = tuple(whole.shape[1:])
    dense = [
        tf.zeros((len(rows), *row_shape), whole._dtype) if gradient is None else tf.convert_to_tensor(gradient)
        for gradient, rows in zip(gradients, ranges, strict=True)
    ]
    return tf.concat(dense, 0)


def divided(gradient: Any, whole: Any) -> list[Any]:
    """The gradient of each shard of `whole`, from that of all of it; the opposite of what `taken` does."""
    shards = shards_of(whole)
    if not shards:
        return [gradient]
    num_rows = whole.shape[0]
    if not isinstance(gradient, tf.IndexedSlices):
        return [gradient[rows.start : rows.stop] for rows in row_ranges(num_rows, len(shards))]
    numbers, places = places_of(gradient.indices, num_rows, len(shards))
    values = tf.dynamic_partition(gradient.values, numbers, len(shards))
    indices = tf.dynamic_partition(places, numbers, len(shards))
    return [
        tf.IndexedSlices(own, ids, tf.constant(tuple(shard.shape), tf.int64))
        for own, ids, shard in zip(values, indices, shards, strict=True)
    ]
