"""Seeds of shuffles: a patch so that another shuffle draws from the same generator (`stages.py`), and drawing again."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from paceline.data.compat import (
    captured_by,
    inputs_of,
    is_reshuffled,
    kind_of,
    share_seeds_of,
    shuffle_buffer_of,
    with_sources,
)
from paceline.data.own_rows.orders import is_left_out


def with_shared_seeds(make: Callable[..., None]) -> Callable[..., None]:
    """The `__init__` of TensorFlow's dataset."""

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if tf.executing_eagerly():
            share_seeds_of(self)

    return made


def draw_as_iterators(dataset: Any, batches: Sequence[int]) -> None:
    """Leaves the shuffles of `dataset` as they are after iterators from which so many `batches` each have been read.

    A shuffle draws one seed for each iterator, read or not; one whose rows are shuffled again only for those read.
    Where it is otherwise (`draws_as_read`), the iterators have to be read.
    """
    later = shuffles_made_later(dataset)
    for num_read in batches:
        iter(dataset)
        for one in later if num_read else ():
            iter(one)


def shuffles_made_later(dataset: Any) -> list[Any]:
    """The shuffles that have no iterator before that is first read: below another one, or behind other rows."""
    return list(_below(dataset, is_later=False))


def _below(dataset: Any, *, is_later: bool) -> Iterator[Any]:
    is_shuffle = shuffle_buffer_of(dataset) is not None
    if is_shuffle and is_later:
        yield dataset
    for number, one in enumerate(inputs_of(dataset)):
        is_behind = number > 0 and kind_of(dataset) == "Concatenate"
        yield from _below(one, is_later=is_later or is_shuffle or is_behind)


_MADE_AS_READ = frozenset(["Repeat", "Concatenate", "Cache"])
"""Kinds of stages that make iterators over a source as they are read: several, one, or none."""


def draws_as_read(dataset: Any) -> bool:
    """Whether it depends on how far an iterator over `dataset` is read which seeds its shuffles draw for that."""
    return any(
        captures_dataset(one) or (kind_of(one) in _MADE_AS_READ and not is_left_out(one) and has_orders(one))
        for one in with_sources(dataset)
    )


def has_orders(dataset: Any) -> bool:
    """Whether a shuffle below, or `dataset` itself, has another order for each iterator."""
    return any(shuffle_buffer_of(one) is not None and is_reshuffled(one) for one in with_sources(dataset))


def captures_dataset(dataset: Any) -> bool:
    """Whether a function that `dataset` calls may make iterators over a dataset from outside of it."""
    return any(tensor.dtype == tf.variant for tensor in captured_by(dataset))
