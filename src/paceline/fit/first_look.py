"""The batches of an execution, looked at before it takes them: none is lost, and each is read once."""

import itertools
from typing import Any

import tensorflow as tf


def looked_at(iterator: Any, num_steps: int) -> tuple[Any, Any]:
    """The first batch of an iterator, None if there is none, and an iterator over that batch and those behind it.

    Args:
        iterator: TensorFlow's, or Python's.
        num_steps: How many batches the execution takes: the iterator over TensorFlow's has no more.
    """
    if not isinstance(iterator, tf.data.Iterator):
        batches = list(itertools.islice(iterator, 1))
        return (batches[0] if batches else None), itertools.chain(batches, iterator)
    batches = list(itertools.islice(_until_the_end(iterator), num_steps))
    if not batches:
        return None, iterator
    spec = iterator.element_spec
    first, *others = (_dataset(batch, spec) for batch in batches)
    for other in others:
        first = first.concatenate(other)
    return batches[0], iter(first)


def _dataset(batch: Any, spec: Any) -> Any:
    """One batch, as wide as all batches may be: nothing that is traced for it is traced again for others."""
    variant = tf.data.experimental.to_variant(tf.data.Dataset.from_tensors(batch))
    return tf.data.experimental.from_variant(variant, spec)


def _until_the_end(iterator: Any) -> Any:
    while True:
        try:
            yield next(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):
            return
