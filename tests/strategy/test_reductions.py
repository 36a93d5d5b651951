"""Combining values over replicas: `reduce`, `gather`, `all_reduce`, `all_gather`; uneven, sparse, in graphs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from thread_worlds import on_each_rank

from paceline.strategy.base import SynchronousStrategy

SIZES = (1, 2, 3)


def _maybe_in_function(in_function: bool, function: Callable[..., Any]) -> Callable[..., Any]:
    wrapped: Callable[..., Any] = tf.function(function) if in_function else function
    return wrapped


def _rows_of(rank: int) -> np.ndarray:
    """A matrix of rank + 1 rows."""
    return np.arange((rank + 1) * 2, dtype="float32").reshape(rank + 1, 2) + 10 * rank


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("in_function", [False, True])
def test_reducing_rows_counts_those_of_all_ranks(in_function: bool, size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def combine() -> Any:
            value = strategy.run(lambda: tf.constant(_rows_of(strategy.world.rank)))
            return [
                strategy.reduce(operation, value, axis=axis)
                for operation in (tf.distribute.ReduceOp.SUM, "mean")
                for axis in (0, -2, (0, 1))
            ]

        return [tensor.numpy() for tensor in _maybe_in_function(in_function, combine)()]

    everything = np.concatenate([_rows_of(rank) for rank in range(size)])
    expected = [reduction(everything, axis) for reduction in (np.sum, np.mean) for axis in (0, 0, (0, 1))]
    for results in on_each_rank(size, job):
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_reducing_across_replicas_only(size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        rank = strategy.world.rank
        value = strategy.run(lambda: {"a": tf.constant([rank, 2 * rank]), "b": (tf.constant(1.0 + rank),)})
        total = strategy.reduce("SUM", value["a"], axis=None)
        mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, value["b"][0], axis=None)
        everything = strategy.extended.reduce_to("SUM", value, destinations="/cpu:0")
        [first, second] = strategy.extended.batch_reduce_to("SUM", [(value["a"], "/cpu:0"), (mean, "/cpu:0")])
        assert total.dtype == tf.int32
        assert float(strategy.reduce("SUM", 2.0, axis=None)) == 2.0 * size
        return [*total.numpy(), float(mean), *everything["a"].numpy(), *first.numpy(), float(second) / size]

    triangle = size * (size - 1) / 2
    mean = 1.0 + triangle / size
    sums = [triangle, 2 * triangle]
    for result in on_each_rank(size, job):
        np.testing.assert_allclose(result, [*sums, mean, *sums, *sums, mean], rtol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
def test_gathering_uneven_parts_along_each_axis(dtype: str, in_function: bool, size: int) -> None:
    def part(rank: int, axis: int) -> np.ndarray:
        shape = [2, 2, 2]
        shape[axis] = rank  # the chief has nothing to give
        return (np.arange(np.prod(shape)).reshape(shape) % 3 + rank).astype(dtype)

    def job(strategy: SynchronousStrategy) -> Any:
        rank = strategy.world.rank

        def outside(axis: int) -> Any:
            value = strategy.run(lambda: tf.constant(part(rank, axis)))
            return strategy.gather(value, axis=axis)

        def inside(axis: int) -> Any:
            context = tf.distribute.get_replica_context
            return strategy.run(lambda: context().all_gather(tf.constant(part(rank, axis)), axis=axis))

        return [
            _maybe_in_function(in_function, gather)(axis).numpy() for axis in range(3) for gather in (outside, inside)
        ]

    expected = [np.concatenate([part(rank, axis) for rank in range(size)], axis) for axis in (0, 0, 1, 1, 2, 2)]
    for results in on_each_rank(size, job):
        for result, value in zip(results, expected, strict=True):
            assert result.dtype == value.dtype
            np.testing.assert_array_equal(result, value)


def test_gathering_what_cannot_be_gathered_says_so() -> None:
    def job(strategy: SynchronousStrategy) -> None:
        with pytest.raises(ValueError, match="axis must be in"):
            strategy.gather(tf.constant(1.0), axis=0)
        with pytest.raises(ValueError, match="axis must be in"):
            strategy.gather(tf.constant([1.0]), axis=1)
        with pytest.raises(TypeError, match="RaggedTensor"):
            strategy.gather(tf.ragged.constant([[1.0], []]), axis=0)
        with pytest.raises(NotImplementedError):
            strategy.gather(tf.IndexedSlices(tf.constant([1.0]), tf.constant([0])), axis=0)

    on_each_rank(2, job)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("in_function", [False, True])
def test_gathering_where_the_graph_knows_no_shapes(in_function: bool, size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def gather(value: Any, axis: Any) -> Any:
            return strategy.gather(value, axis=axis)

        unknown = [tf.TensorSpec(None, tf.float32), tf.TensorSpec([], tf.int32)]
        run = tf.function(gather, input_signature=unknown) if in_function else gather
        return run(tf.transpose(tf.constant(_rows_of(strategy.world.rank))), tf.constant(1)).numpy()

    expected = np.concatenate([_rows_of(rank) for rank in range(size)]).T
    for result in on_each_rank(size, job):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("in_function", [False, True])
def test_gradients_through_all_reduce_and_all_gather(in_function: bool, size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        rank = strategy.world.rank

        def replica(value: Any) -> Any:
            context = tf.distribute.get_replica_context()
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(value)
                total, _ = context.all_reduce("SUM", [value, (2.0 * value,)])
                everyones = context.all_gather(value, axis=0)
                loss = (rank + 1.0) * tf.reduce_sum(total[0])
                gathered_loss = (rank + 1.0) * tf.reduce_sum(everyones * everyones)
            return tape.gradient(loss, value), tape.gradient(gathered_loss, value)

        run = _maybe_in_function(in_function, lambda value: strategy.run(replica, args=(value,)))
        return [gradient.numpy().tolist() for gradient in run(tf.fill([1], rank + 5.0))]

    weight = size * (size + 1) / 2
    for rank, gradients in enumerate(on_each_rank(size, job)):
        assert gradients == [[weight], [2.0 * (rank + 5.0) * weight]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operation", ["SUM", "MEAN"])
def test_sparse_gradients_keep_the_rows_of_all(operation: str, size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        rank = strategy.world.rank
        slices = tf.IndexedSlices(tf.fill([rank + 1, 1], rank + 1.0), tf.range(rank + 1), tf.constant([size, 1]))
        context = tf.distribute.get_replica_context
        inside, dense = strategy.run(lambda: context().all_reduce(operation, [slices, tf.constant(1.0)]))
        outside = strategy.reduce(operation, slices, axis=None)
        assert isinstance(inside, tf.IndexedSlices)
        assert isinstance(outside, tf.IndexedSlices)
        assert float(dense) == (size if operation == "SUM" else 1.0)
        return tf.convert_to_tensor(inside).numpy(), tf.convert_to_tensor(outside).numpy()

    share = 1.0 if operation == "SUM" else 1.0 / size
    expected = [[share * sum(rank + 1.0 for rank in range(row, size))] for row in range(size)]
    for both in on_each_rank(size, job):
        for result in both:
            np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_a_value_of_one_replica_is_mirrored_to_all() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        with strategy.scope():
            return float(strategy.extended.broadcast_to(tf.constant(strategy.world.rank + 1.0), "/cpu:0"))

    assert on_each_rank(3, job) == [1.0] * 3
