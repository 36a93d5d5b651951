"""Datasets of local batches that are not equally long: who runs out goes on with batches of no rows.

Such a rank takes part in the others' steps and adds nothing, so every row of every rank is used, once; the epoch ends
on all ranks in the step for which none has rows (`strategy/replica_context.py` counts them).

What a dataset does not say of its shapes (images of any size) an empty batch takes from the batch before it, or, of a
rank that has none, from another rank's: a model may not be able to work on images of 1 x 1.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.group import Array

_PREFETCHED_BATCHES = 2


def can_be_empty(element_spec: Any) -> bool:
    """Whether batches of this kind can have no rows: each component has a first axis."""
    return all(_has_rows(leaf) for leaf in tf.nest.flatten(element_spec))


def followed_by_empty_batches(dataset: Any, shapes: Sequence[Any] | None = None) -> Any:
    """`dataset`, and after it batches of zero rows without end; as it is if they cannot be empty.

    Args:
        dataset: A `tf.data.Dataset` of dense, ragged and sparse batches.
        shapes: From `shapes_of`, for a dataset without any batch; None: it takes them from its own.
    """
    spec = dataset.element_spec
    leaves = tf.nest.flatten(spec)
    if not can_be_empty(spec):
        return dataset
    if shapes is None:
        shapes = [np.array([1 if size is None else size for size in _dense_shape(leaf)], np.int64) for leaf in leaves]
    empty = tf.nest.pack_sequence_as(spec, [_empty(leaf, sizes) for leaf, sizes in zip(leaves, shapes, strict=True)])
    tail = tf.data.Dataset.from_tensors(0).repeat()
    if not needs_shapes(spec):
        return dataset.concatenate(tail.map(lambda _: empty))

    def shaped(seen: Any, flagged: Any) -> tuple[Any, Any]:
        is_real, batch = flagged
        flat = tf.nest.flatten(batch)
        seen = [tf.where(is_real, _shape(leaf), sizes) for leaf, sizes in zip(flat, seen, strict=True)]
        rows = [tf.where(is_real, sizes, tf.concat([[0], sizes[1:]], 0)) for sizes in seen]
        return tuple(seen), tf.nest.pack_sequence_as(spec, list(map(_reshaped, flat, rows, leaves)))

    # `enumerate` keeps a tuple of components one element.
    flagged = dataset.enumerate().map(lambda _, batch: (True, batch)).concatenate(tail.map(lambda _: (False, empty)))
    return flagged.scan(tuple(tf.constant(sizes, tf.int64) for sizes in shapes), shaped)


def every_nth_batch(dataset: Any, rank: int, size: int) -> Any:
    """The batches rank, rank + size, … of a `dataset` that is equal on all ranks; equally many on each.

    What is missing in the last round are batches without rows (of a dataset of dense tensors).
    """
    if size == 1:
        return dataset

    def count(state: Any, element: Any) -> tuple[Any, Any]:
        position, num_batches = state
        number, batch = element
        num_batches += tf.size(number, tf.int64)
        return (position + 1, num_batches), (position, num_batches, batch)

    def is_in_a_round(position: Any, num_batches: Any, batch: Any) -> Any:
        del batch
        return position < -(-num_batches // size) * size

    # The number has a row, as long as the batch is one of the dataset.
    numbered = dataset.enumerate().map(lambda number, batch: (number[tf.newaxis], batch))
    counted = followed_by_empty_batches(numbered).scan((tf.constant(0, tf.int64), tf.constant(0, tf.int64)), count)
    own = counted.take_while(is_in_a_round).filter(lambda position, *_: position % size == rank)
    return own.map(lambda *counted_batch: counted_batch[-1]).prefetch(_PREFETCHED_BATCHES)


def needs_shapes(element_spec: Any) -> bool:
    """Whether a batch of no rows needs to know more than this spec says."""
    return any(None in _dense_shape(leaf)[1:] for leaf in tf.nest.flatten(element_spec))


def shapes_of_another(dataset: Any, counts: Any, rank: int, gather: Callable[[Array], Array]) -> list[Array] | None:
    """The shapes of a batch of another rank, if this one has none and needs them; else None.

    Collective where some rank is known to have no batch and another to have some; the others read their first one.

    Args:
        dataset: This rank's.
        counts: Every rank's number of batches, an int64 array; negative where it is not known.
        rank: This rank.
        gather: Puts the ranks' int64 arrays of shape [1, n] one below the other.
    """
    spec = dataset.element_spec
    if not (can_be_empty(spec) and needs_shapes(spec) and (counts == 0).any() and (counts > 0).any()):
        return None
    ranks = [_dense_shape(leaf).rank for leaf in tf.nest.flatten(spec)]
    own = np.zeros([1, sum(ranks)], np.int64)
    if counts[rank] > 0:
        batch = next(iter(dataset))
        own[0] = np.concatenate([_shape(leaf).numpy() for leaf in tf.nest.flatten(batch)])
    everyones = gather(own)
    if counts[rank] != 0:
        return None
    return np.split(everyones[int((counts > 0).argmax())], np.cumsum(ranks)[:-1])


def _has_rows(spec: Any) -> bool:
    if isinstance(spec, tf.RaggedTensorSpec):
        return spec.ragged_rank > 0 and _dense_shape(spec).rank is not None
    return isinstance(spec, (tf.TensorSpec, tf.SparseTensorSpec)) and bool(spec.shape.rank)


def _dense_shape(spec: Any) -> Any:
    """The shape of what holds a component's numbers; of a ragged one its flat values."""
    if not isinstance(spec, tf.RaggedTensorSpec):
        return spec.shape
    inner = spec.shape[spec.ragged_rank + 1 :] if spec.shape.rank is not None else tf.TensorShape(None)
    return tf.TensorShape([None]).concatenate(inner)


def _shape(leaf: Any) -> Any:
    """int64 vector: the shape that `_dense_shape` tells beforehand."""
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape
    return tf.shape(leaf.flat_values if isinstance(leaf, tf.RaggedTensor) else leaf, tf.int64)


def _empty(spec: Any, sizes: Any) -> Any:
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensor(
            tf.zeros([0, len(sizes)], tf.int64), tf.zeros([0], spec.dtype), tf.constant([0, *sizes[1:]], tf.int64)
        )
    nothing = tf.zeros([0, *sizes[1:]], spec.dtype)
    if isinstance(spec, tf.RaggedTensorSpec):
        for _ in range(spec.ragged_rank):
            nothing = tf.RaggedTensor.from_row_lengths(nothing, tf.zeros([0], spec.row_splits_dtype), validate=False)
    return nothing


def _reshaped(leaf: Any, sizes: Any, spec: Any) -> Any:
    """A component in the same shape, or one without rows in another, `sizes`; of `spec` beside its rows."""
    known = tf.TensorShape([None]).concatenate(_dense_shape(spec)[1:])
    if isinstance(leaf, tf.RaggedTensor):
        flat_values = tf.reshape(leaf.flat_values, sizes)
        flat_values.set_shape(known)
        return leaf.with_flat_values(flat_values)
    result = tf.SparseTensor(leaf.indices, leaf.values, sizes) if isinstance(leaf, tf.SparseTensor) else None
    result = tf.reshape(leaf, sizes) if result is None else result
    result.set_shape(known)
    return result
