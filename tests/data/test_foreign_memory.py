"""Arrays of the script stay as they are, whatever steps do with the rows that Paceline cuts out of them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from aligned_arrays import BOUNDARY_BYTES, array_at
from paceline.data.foreign_memory import may_be_foreign
from paceline.data.own_rows.local_batches import local_batches

ROWS = 128


def vector(dtype: str) -> Any:
    return tf.TensorSpec([None], dtype)


def from_generator(array: np.ndarray) -> Any:
    return tf.data.Dataset.from_generator(lambda: iter([array]), output_signature=vector(array.dtype.name))


def from_numpy_function(array: np.ndarray) -> Any:
    return tf.data.Dataset.range(1).map(
        lambda _: tf.ensure_shape(tf.numpy_function(lambda: array, [], array.dtype), [None])
    )


def inside_of_a_function(array: np.ndarray) -> Any:
    return tf.data.Dataset.range(1).flat_map(lambda _: from_generator(array))


def captured_by_a_function(array: np.ndarray) -> Any:
    dataset = from_generator(array)
    return tf.data.Dataset.range(1).flat_map(lambda _: dataset)


def known_as_a_tensor_only(array: np.ndarray) -> Any:
    dataset = from_generator(array)
    return tf.data.experimental.from_variant(tf.data.experimental.to_variant(dataset), dataset.element_spec)


def behind_other_stages(array: np.ndarray) -> Any:
    return from_generator(array).shuffle(3).prefetch(1).repeat(1)


def shared_out_by_the_script(array: np.ndarray) -> Any:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return from_generator(array).with_options(options)


SOURCES: tuple[Callable[[np.ndarray], Any], ...] = (
    from_generator,
    from_numpy_function,
    inside_of_a_function,
    captured_by_a_function,
    known_as_a_tensor_only,
    behind_other_stages,
    shared_out_by_the_script,
)


@tf.function
def step(iterator: Any) -> Any:
    """What operations compute in place of the rows, if nothing keeps them from it."""
    rows = next(iterator)
    rows = tf.logical_not(rows) if rows.dtype == tf.bool else rows * tf.cast(3, rows.dtype) + tf.cast(1, rows.dtype)
    return tf.reduce_sum(tf.cast(rows, tf.float64))


def totals_of_ranks(dataset: Any) -> Iterator[float]:
    """Of each of two ranks, over all steps."""
    for rank in range(2):
        iterator, total = iter(local_batches(dataset, rank, 2)), 0.0
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                total += float(step(iterator))
        yield total


def assert_untouched(source: Callable[[np.ndarray], Any], offset: int) -> None:
    values = 1.0 + np.arange(ROWS)
    array = array_at(offset, values)
    totals = list(totals_of_ranks(source(array)))
    np.testing.assert_array_equal(array, values)
    times = 2 if source is shared_out_by_the_script else 1
    assert sum(totals) == times * (3 * values.sum() + ROWS)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_a_step_does_not_write_into_arrays_of_the_script(source: Callable[[np.ndarray], Any]) -> None:
    """A slice of a tensor over an array's memory does not know whose memory it is: operations wrote into it."""
    assert_untouched(source, 0)


@pytest.mark.parametrize("offset", range(8, BOUNDARY_BYTES, 8))
def test_of_every_alignment(offset: int) -> None:
    assert_untouched(from_generator, offset)


NUMBERS = ("float16", "float32", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


@pytest.mark.parametrize("dtype", [*NUMBERS, "complex64", "complex128"])
def test_of_every_dtype(dtype: str) -> None:
    values = np.arange(ROWS).astype(dtype)
    array = array_at(0, values)
    assert len(list(totals_of_ranks(from_generator(array)))) == 2
    np.testing.assert_array_equal(array, values)


def test_a_tensor_that_a_generator_yields_stays_as_it_is() -> None:
    tensor = tf.range(ROWS, dtype=tf.float64)
    dataset = tf.data.Dataset.from_generator(lambda: iter([tensor]), output_signature=vector("float64"))
    list(totals_of_ranks(dataset))
    np.testing.assert_array_equal(tensor, np.arange(ROWS))


def test_ragged_and_sparse_rows_of_arrays_stay_as_they_are() -> None:
    arrays = [
        array_at(0, np.arange(1.0, 65.0)),  # values
        array_at(0, np.arange(0, 65, 8)),  # row splits
        array_at(0, np.array([[row, 0] for row in range(8)])),  # indices
        array_at(0, np.array([8, 2])),  # shape
    ]
    before = [array.copy() for array in arrays]

    def composites(_: Any) -> Any:
        values, splits, indices, shape = tf.numpy_function(lambda: arrays, [], [array.dtype for array in arrays])
        values, splits = tf.ensure_shape(values, [None]), tf.ensure_shape(splits, [9])
        ragged = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        indices, shape = tf.ensure_shape(indices, [None, 2]), tf.ensure_shape(shape, [2])
        return ragged, tf.SparseTensor(indices, values[:8], shape)

    dataset = tf.data.Dataset.range(1).map(composites)

    @tf.function
    def total(iterator: Any) -> Any:
        ragged, sparse = next(iterator)
        return tf.reduce_sum(ragged.flat_values * 3.0 + 1.0), tf.reduce_sum(sparse.values * 3.0 + 1.0)

    for rank in range(2):
        total(iter(local_batches(dataset, rank, 2)))
        for array, expected in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, expected)


def test_only_what_may_be_an_arrays_memory_is_looked_at() -> None:
    """Batches in new memory, and those that a cache keeps, cost what they cost before."""
    array = np.ones([8, 2])
    of_tensorflow = tf.data.Dataset.from_tensor_slices(array).shuffle(8).batch(4)
    assert not may_be_foreign(of_tensorflow.cache().prefetch(2))
    assert not may_be_foreign(from_generator(np.ones(8)).unbatch().batch(4).cache())
    assert may_be_foreign(from_generator(np.ones(8)).cache())
