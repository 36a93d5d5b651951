"""Which `Source` reads what a call was given: the one place that asks for kinds of data."""

import inspect
from collections.abc import Callable
from types import GeneratorType
from typing import Any

import keras
import tensorflow as tf

from paceline.data.indexed.index_source import reading_of
from paceline.data.items.streams import stream_of
from paceline.data.own_rows.auto_shard import is_sharded_by_hand
from paceline.data.own_rows.index_batches import IndexDivision, index_division_of
from paceline.data.own_rows.local_batches import is_local
from paceline.fit.compat import ArrayDataAdapter, GeneratorDataAdapter, PyDatasetAdapter
from paceline.fit.sources.datasets import Arrays, ByIndex, OwnByIndex, OwnTfData, TfData
from paceline.fit.sources.generators import Generator
from paceline.fit.sources.py_datasets import PyDatasetItems, Untouched
from paceline.fit.sources.source import Opened, Source


def before_look(given: Any) -> Any:
    """What is to be known of data before Keras looks at them, for `Opened`."""
    if isinstance(given, GeneratorType):
        stream_of(given).use(given)
    has_threads = isinstance(given, keras.utils.PyDataset) and given.workers > 1 and not given.use_multiprocessing
    return Untouched(given) if has_threads else None  # of any other the first items say nothing


def source_of(opened: Opened, size: int = 1, *, reads_by_index: bool = True) -> Source:
    """The source that reads some data.

    Args:
        opened: By Keras.
        size: Number of ranks that share the rows of a batch.
        reads_by_index: Whether rows that could be read by their numbers are.
    """
    if isinstance(opened.adapter, GeneratorDataAdapter):
        return Generator(opened)
    if isinstance(opened.adapter, PyDatasetAdapter):
        return PyDatasetItems(opened)
    if isinstance(opened.adapter, ArrayDataAdapter):
        return Arrays(opened)
    counts_epochs = reading_of(opened.dataset) is not None
    if is_local(opened.given) or (size > 1 and is_sharded_by_hand(opened.dataset)):
        return OwnByIndex(opened) if counts_epochs else OwnTfData(opened)
    if counts_epochs:  # a strategy's rows, which Keras has mapped
        return ByIndex(opened)
    division = index_division_of(opened.dataset) if reads_by_index and tf.executing_eagerly() else None
    if isinstance(division, IndexDivision) and division.counts_epochs:
        return ByIndex(opened, division)
    return TfData(opened)


def is_dataset_function(data: Any) -> bool:
    """Whether `data` is a function in place of data."""
    return inspect.isroutine(data) or (
        callable(data) and not isinstance(data, (keras.utils.PyDataset, tf.data.Dataset))
    )


def dataset_made(function: Callable[..., Any], num_readers: int, index: int) -> tf.data.Dataset:
    """What a function in place of data makes for one of those who read.

    Args:
        function: Takes a `tf.distribute.InputContext` or nothing.
        num_readers: How many processes call it.
        index: Which of them this is, from 0.

    Raises:
        ValueError: it returns no dataset.
    """
    takes_context = bool(inspect.signature(function).parameters)
    dataset = function(tf.distribute.InputContext(num_readers, index, 1)) if takes_context else function()
    if not isinstance(dataset, tf.data.Dataset):
        raise ValueError(
            f"the function in place of data returned {type(dataset).__name__}; expected a tf.data.Dataset "
            "of batches [dataset-function]"
        )
    return dataset
