"""A dataset of batches that are dealt to the ranks one by one, in place of the rows of each."""

from typing import Any

import tensorflow as tf

from paceline.data.own_rows.uneven import followed_by_empty_batches

_PREFETCHED_BATCHES = 2


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
