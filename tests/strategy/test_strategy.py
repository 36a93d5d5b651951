"""A Paceline strategy is a `tf.distribute.Strategy`: what custom training loops ask of one."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from thread_worlds import on_each_rank

from paceline.strategy.base import SynchronousStrategy


def test_what_a_replica_knows() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def replica() -> tuple[int, int]:
            context = tf.distribute.get_replica_context()
            assert context.strategy is strategy
            return context.replica_id_in_sync_group, context.num_replicas_in_sync

        assert isinstance(strategy, tf.distribute.Strategy)
        assert strategy.num_replicas_in_sync == 3
        assert strategy.cluster_resolver is None
        assert strategy.extended.should_checkpoint == (strategy.world.rank == 0)
        assert strategy.extended.should_save_summary == (strategy.world.rank == 0)
        return strategy.run(replica)

    assert on_each_rank(3, job) == [(0, 3), (1, 3), (2, 3)]


def test_a_variable_made_in_scope_starts_from_the_chiefs_value() -> None:
    def job(strategy: SynchronousStrategy) -> float:
        with strategy.scope():
            variable = tf.Variable(10.0 + strategy.world.rank)
        return float(variable)

    assert on_each_rank(2, job) == [10.0, 10.0]


@pytest.mark.parametrize(("operation", "expected"), [("SUM", [3.0, 30.0]), ("MEAN", [1.5, 15.0])])
def test_all_reduce_in_a_replica_and_its_gradient(operation: str, expected: list[float]) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def replica(value: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(value)
                total = tf.distribute.get_replica_context().all_reduce(operation, value)
                loss = tf.reduce_sum(total * (strategy.world.rank + 1.0))
            return total, tape.gradient(loss, value)

        value = tf.constant([1.0, 10.0]) * (strategy.world.rank + 1.0)
        total, gradient = tf.function(lambda: strategy.run(replica, args=(value,)))()
        return total.numpy().tolist(), gradient.numpy().tolist()

    share = 1.0 if operation == "SUM" else 0.5
    # Each rank's loss depends on every rank's value: the upstream gradients 1 and 2 are added.
    assert on_each_rank(2, job) == [(expected, [3.0 * share, 3.0 * share])] * 2


def test_reduce_over_replicas_and_over_the_rows_of_all() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        rank = strategy.world.rank
        per_replica = strategy.run(lambda: tf.fill([rank + 1], float(rank + 1)))
        scalar = strategy.run(lambda: tf.constant(float(rank)))
        return [
            float(strategy.reduce(tf.distribute.ReduceOp.SUM, scalar, axis=None)),
            float(strategy.reduce("MEAN", scalar, axis=None)),
            float(strategy.reduce("SUM", per_replica, axis=0)),
            float(strategy.reduce("MEAN", per_replica, axis=0)),
        ]

    results = on_each_rank(2, job)
    assert results[0] == results[1]
    assert results[0] == pytest.approx([1.0, 0.5, 1.0 + 4.0, 5.0 / 3.0])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_along_any_axis(axis: int) -> None:
    def value_of(rank: int) -> np.ndarray:
        shape = [2, 3, 2]
        shape[axis] = rank + 1
        return np.arange(np.prod(shape), dtype="float32").reshape(shape) + 100 * rank

    def job(strategy: SynchronousStrategy) -> Any:
        value = strategy.run(lambda: tf.constant(value_of(strategy.world.rank)))
        return strategy.gather(value, axis=axis).numpy()

    for gathered in on_each_rank(2, job):
        np.testing.assert_array_equal(gathered, np.concatenate([value_of(0), value_of(1)], axis))


def test_values_and_datasets_of_each_replica() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        values = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(context.replica_id_in_sync_group * 10 + context.num_replicas_in_sync)
        )
        per_worker = strategy.distribute_datasets_from_function(
            lambda context: (
                tf.data.Dataset.range(8)
                .shard(context.num_input_pipelines, context.input_pipeline_id)
                .batch(context.get_per_replica_batch_size(4))
            )
        )
        distributed = strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4))
        return (
            int(strategy.experimental_local_results(values)[0]),
            [batch.numpy().tolist() for batch in per_worker],
            [batch.numpy().tolist() for batch in distributed],
        )

    assert on_each_rank(2, job) == [
        (2, [[0, 2], [4, 6]], [[0, 1], [4, 5]]),
        (12, [[1, 3], [5, 7]], [[2, 3], [6, 7]]),
    ]


def test_a_custom_loop_trains_on_the_global_batch() -> None:
    """TensorFlow's guide: each replica divides by the global batch size, gradients are summed by `apply`."""
    data = np.linspace(-1, 1, 8, dtype="float32")

    def job(strategy: SynchronousStrategy) -> Any:
        with strategy.scope():
            slope = tf.Variable(0.0)
        dataset = tf.data.Dataset.from_tensor_slices((data, 3 * data)).batch(5)

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.nn.compute_average_loss(tf.square(slope * x - y), global_batch_size=5)
            gradient = tf.distribute.get_replica_context().all_reduce("SUM", tape.gradient(loss, slope))
            slope.assign_sub(0.1 * gradient)
            return loss

        run = tf.function(lambda x, y: strategy.run(step, args=(x, y)))
        losses = [
            float(strategy.reduce("SUM", run(x, y), axis=None))
            for _ in range(2)
            for x, y in strategy.experimental_distribute_dataset(dataset)
        ]
        return [float(slope), *losses]

    [one] = on_each_rank(1, job)
    for several in on_each_rank(3, job):
        assert several == pytest.approx(one, rel=1e-6)
