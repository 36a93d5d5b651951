"""Seeds of shuffles: a patch so that another shuffle draws from the same generator (`stages.py`), and drawing again."""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from paceline.data.compat import inputs_of, share_seeds_of, shuffle_buffer_of


def with_shared_seeds(make: Callable[..., None]) -> Callable[..., None]:
    """The `__init__` of TensorFlow's dataset."""

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if tf.executing_eagerly():
            share_seeds_of(self)

    return made


def draw_as_iterators(dataset: Any, batches: list[int]) -> None:
    """Leaves the shuffles of `dataset` as they are after iterators from which so many `batches` each have been read.

    A shuffle draws one seed for each iterator, read or not; one whose rows are shuffled again only for those read.
    """
    inner = shuffled_again(dataset)
    for num_read in batches:
        iter(dataset)
        for one in inner if num_read else ():
            iter(one)


def shuffled_again(dataset: Any) -> list[Any]:
    """The shuffles whose rows another one shuffles: they have no iterator before that is first read."""
    return list(_below(dataset, is_shuffled=False))


def _below(dataset: Any, *, is_shuffled: bool) -> Iterator[Any]:
    is_shuffle = shuffle_buffer_of(dataset) is not None
    if is_shuffle and is_shuffled:
        yield dataset
    for one in inputs_of(dataset):
        yield from _below(one, is_shuffled=is_shuffled or is_shuffle)
