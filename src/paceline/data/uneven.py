"""Datasets of local batches that are not equally long: who runs out goes on with batches of no rows.

Such a rank takes part in the others' steps and adds nothing, so every row of every rank is used, once; the epoch ends
on all ranks in the step for which none has rows (`strategy/replica_context.py` counts them).
"""

from typing import Any

import tensorflow as tf


def followed_by_empty_batches(dataset: Any) -> Any:
    """`dataset`, and after it batches of zero rows without end; as it is if it has components without a first axis."""
    leaves = tf.nest.flatten(dataset.element_spec)
    if not all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank for leaf in leaves):
        return dataset
    empty = tf.nest.map_structure(_empty, dataset.element_spec)
    return dataset.concatenate(tf.data.Dataset.from_tensors(empty).repeat())


def _empty(spec: Any) -> Any:
    _, *others = spec.shape
    return tf.zeros([0, *[1 if size is None else size for size in others]], spec.dtype)
