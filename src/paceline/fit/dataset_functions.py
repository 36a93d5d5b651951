"""Functions in place of data, as `fit` takes them under parameter servers: they make a dataset for each reader."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


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
