"""Of which pipelines `fit` says that they draw random numbers which no snapshot holds."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from paceline.fit.sources.datasets import TfData
from paceline.fit.sources.source import Opened


def with_table() -> Callable[[Any], Any]:
    pairs = tf.lookup.KeyValueTensorInitializer(np.arange(9), np.arange(9))
    return tf.function(tf.lookup.StaticHashTable(pairs, 0).lookup)


def with_text() -> Callable[[Any], Any]:
    layer = keras.layers.TextVectorization(vocabulary=["1", "2"], output_sequence_length=2)
    return tf.function(lambda number: layer(tf.strings.as_string(number)))


def with_weights() -> Callable[[Any], Any]:
    variable = tf.Variable(1, dtype=tf.int64)
    return lambda number: number * variable


def with_python() -> Callable[[Any], Any]:
    return tf.function(lambda number: tf.numpy_function(np.square, [number], tf.int64))


def with_chance() -> Callable[[Any], Any]:
    return tf.function(lambda number: number + tf.random.uniform([], 0, 9, tf.int64))


def with_augmentation() -> Callable[[Any], Any]:
    layer = keras.layers.RandomFlip(seed=1)
    return lambda number: layer(tf.ones([2, 2, 3]) * tf.cast(number, tf.float32))


def told(make: Callable[[], Callable[[Any], Any]], caplog: pytest.LogCaptureFixture) -> list[str]:
    dataset = tf.data.Dataset.range(9).map(make())
    source = TfData(Opened(dataset, None, SimpleNamespace(num_batches=None), dataset, None))
    source.speaks = True
    source.made(dataset)
    return [line for line in caplog.messages if "TensorFlow has no seed" not in line]


@pytest.mark.parametrize("make", [with_table, with_text, with_weights, with_python])
def test_a_state_that_gives_no_random_numbers_is_not_called_random(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    """TensorFlow names whatever has a state first: the call of a function, or the reading of a variable."""
    assert told(make, caplog) == []


@pytest.mark.parametrize(
    ("make", "operation"), [(with_chance, "RandomUniformInt"), (with_augmentation, "AssignVariableOp")]
)
def test_what_draws_is_named(make: Any, operation: str, caplog: pytest.LogCaptureFixture) -> None:
    [line] = told(make, caplog)
    assert "draws random numbers" in line
    assert f"({operation})" in line
