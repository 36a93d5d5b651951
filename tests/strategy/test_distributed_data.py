"""Datasets and values for each replica, and the loops that `tf.distribute`'s guides write over them."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from thread_worlds import on_each_rank

from paceline.strategy.base import SynchronousStrategy

SIZES = (1, 2, 3)
OFF = tf.data.experimental.AutoShardPolicy.OFF


def _dataset(rows: int = 10, batch: int = 4) -> Any:
    return tf.data.Dataset.range(rows).batch(batch)


def _with_policy(dataset: Any, policy: Any) -> Any:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _total(strategy: SynchronousStrategy, batch: Any) -> Any:
    """The sum of a batch over all replicas."""
    return strategy.reduce("SUM", strategy.run(tf.reduce_sum, args=(batch,)), axis=None)


@pytest.mark.parametrize("size", SIZES)
def test_every_way_to_write_a_loop(size: int) -> None:
    """10 rows in batches of 4: the last one is smaller, and three ranks have unequal parts."""

    def job(strategy: SynchronousStrategy) -> Any:
        data = strategy.experimental_distribute_dataset(_dataset())
        sums: dict[str, list[int]] = {}
        sums["for"] = [int(_total(strategy, batch)) for batch in data]

        iterator = iter(data)
        sums["next"] = [int(_total(strategy, next(iterator))) for _ in range(3)]
        with pytest.raises(StopIteration):
            next(iterator)

        step = tf.function(lambda iterator: _total(strategy, next(iterator)))
        iterator = iter(data)
        sums["next in a function"] = [int(step(iterator)) for _ in range(3)]
        with pytest.raises(tf.errors.OutOfRangeError):
            step(iterator)

        @tf.function
        def epoch(data: Any) -> Any:
            total = tf.constant(0, tf.int64)
            for batch in data:
                total += _total(strategy, batch)
            return total

        sums["for in a function"] = [int(epoch(data)) for _ in range(2)]

        @tf.function
        def steps(iterator: Any) -> Any:
            total = tf.constant(0, tf.int64)
            for _ in tf.range(2):
                total += _total(strategy, next(iterator))
            return total

        sums["steps in a function"] = [int(steps(iter(data)))]

        @tf.function
        def until_the_end(iterator: Any) -> Any:
            total = tf.constant(0, tf.int64)
            batch = iterator.get_next_as_optional()
            while batch.has_value():
                total += _total(strategy, batch.get_value())
                batch = iterator.get_next_as_optional()
            return total

        sums["optional"] = [int(until_the_end(iter(data)))]

        @tf.function
        def enumerated(data: Any) -> Any:
            total = tf.constant(0, tf.int64)
            for number, batch in enumerate(data):
                if number == 2:
                    break
                total += _total(strategy, batch)
            return total

        sums["enumerated, with a break"] = [int(enumerated(data))]
        assert iter(data).element_spec == data.element_spec == tf.TensorSpec([None], tf.int64)
        return sums

    for sums in on_each_rank(size, job):
        assert sums == {
            "for": [6, 22, 17],
            "next": [6, 22, 17],
            "next in a function": [6, 22, 17],
            "for in a function": [45, 45],
            "steps in a function": [28],
            "optional": [45],
            "enumerated, with a break": [28],
        }


def test_it_is_known_as_distributed_and_stays_a_dataset() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        for data in (
            strategy.experimental_distribute_dataset(_dataset()),
            strategy.distribute_datasets_from_function(lambda context: _dataset()),
        ):
            assert isinstance(data, tf.distribute.DistributedDataset)
            assert isinstance(data, tf.data.Dataset)
            assert isinstance(iter(data), tf.distribute.DistributedIterator)
            assert isinstance(iter(data), tf.data.Iterator)
            assert data.cardinality() == len(list(data.map(lambda rows: rows + 1))) == 3
            assert strategy.experimental_distribute_dataset(data) is data
        return True

    for size in (1, 2):
        assert on_each_rank(size, job) == [True] * size


def test_a_function_with_the_datasets_signature() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        data = strategy.experimental_distribute_dataset(
            _dataset().map(lambda x: (x, {"again": tf.cast(x, tf.float32)}))
        )
        traces = 0

        def step(batch: Any) -> Any:
            nonlocal traces
            traces += 1
            return _total(strategy, batch[1]["again"])

        run = tf.function(step, input_signature=[data.element_spec])
        assert [float(run(batch)) for batch in data] == [6.0, 22.0, 17.0]
        return traces

    assert on_each_rank(2, job) == [1, 1]


@pytest.mark.parametrize("size", SIZES)
def test_data_that_the_user_has_shared_out(size: int) -> None:
    """`AutoShardPolicy.OFF`: a rank keeps all of its own rows, in batches of its part of the global batch."""

    def job(strategy: SynchronousStrategy) -> Any:
        own = tf.data.Dataset.range(24).shard(size, strategy.world.rank).batch(6)
        batches = list(strategy.experimental_distribute_dataset(_with_policy(own, OFF)))
        return [batch.numpy().tolist() for batch in batches]

    for rank, batches in enumerate(on_each_rank(size, job)):
        own = list(range(rank, 24, size))
        share = 6 // size
        assert batches == [own[begin : begin + share] for begin in range(0, len(own), share)]


def test_unequal_parts_of_shared_out_data_add_up_to_the_global_batch() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        data = tf.data.Dataset.range(14).map(lambda x: {"x": x, "scalar": tf.constant(1)}).batch(7)
        batches = list(strategy.experimental_distribute_dataset(_with_policy(data, OFF)))
        return [batch["x"].numpy().tolist() for batch in batches]

    ranks = on_each_rank(3, job)
    for batches in ranks:
        assert [row for batch in batches for row in batch] == list(range(14))
    for step in zip(*ranks, strict=True):
        assert sum(len(batch) for batch in step) == 7


@pytest.mark.parametrize("policy", ["AUTO", "DATA"])
def test_other_policies_share_out_each_global_batch(policy: str) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        data = _with_policy(_dataset(8), tf.data.experimental.AutoShardPolicy[policy])
        return [batch.numpy().tolist() for batch in strategy.experimental_distribute_dataset(data)]

    assert on_each_rank(2, job) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


@pytest.mark.parametrize("size", SIZES)
def test_a_function_is_told_its_place(size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def make(context: Any) -> Any:
            assert isinstance(context, tf.distribute.InputContext)
            assert context.num_input_pipelines == context.num_replicas_in_sync == size
            assert context.input_pipeline_id == strategy.world.rank
            with pytest.raises(ValueError, match="not divisible"):
                context.get_per_replica_batch_size(6 * size + 1 if size > 1 else 0.5)
            batch = context.get_per_replica_batch_size(6)
            return tf.data.Dataset.range(12).shard(context.num_input_pipelines, context.input_pipeline_id).batch(batch)

        data = strategy.distribute_datasets_from_function(make)
        again = strategy.experimental_distribute_dataset(data)
        assert [batch.shape[0] for batch in again] == [6 // size, 6 // size]
        return [int(_total(strategy, batch)) for batch in data]

    for sums in on_each_rank(size, job):
        assert sum(sums) == 66


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_batches", [1, 3, 4, 6])
def test_one_pipeline_whose_batches_go_round(num_batches: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in TensorFlow's MirroredStrategy: the function is told of one pipeline, and makes the batches of all."""
    monkeypatch.setattr(SynchronousStrategy, "one_input_pipeline", True)

    def job(strategy: SynchronousStrategy) -> Any:
        def make(context: Any) -> Any:
            assert context.num_input_pipelines == 1
            assert context.input_pipeline_id == 0
            assert context.num_replicas_in_sync == size
            pairs = tf.data.Dataset.range(2 * num_batches).map(lambda x: (x, {"float": tf.cast(x, tf.float32)}))
            return pairs.batch(context.get_per_replica_batch_size(2 * size))

        data = strategy.distribute_datasets_from_function(make)
        sums = [int(_total(strategy, x)) for x, _ in data]
        return [x.numpy().tolist() for x, _ in data], sums

    batches = [[2 * number, 2 * number + 1] for number in range(num_batches)]
    rounds = [batches[begin : begin + size] for begin in range(0, num_batches, size)]
    for rank, (own, sums) in enumerate(on_each_rank(size, job)):
        assert own == [one[rank] if rank < len(one) else [] for one in rounds]
        assert sums == [sum(map(sum, one)) for one in rounds]


def test_who_has_fewer_batches_goes_on_without_rows() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        data = strategy.distribute_datasets_from_function(
            lambda context: (
                tf.data.Dataset.range(7).shard(context.num_input_pipelines, context.input_pipeline_id).batch(1)
            )
        )
        return [int(_total(strategy, batch)) for batch in data]

    assert on_each_rank(3, job) == [[3, 12, 6]] * 3


def test_who_has_none_goes_on_with_images_of_another_ranks_size() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def images(context: Any) -> Any:
            count = 2 if context.input_pipeline_id == 1 else 0
            one = tf.data.Dataset.range(count).map(lambda x: tf.zeros([tf.cast(x, tf.int32) + 5, 4]))
            return one.batch(1)

        data = strategy.distribute_datasets_from_function(images)
        return [tuple(batch.shape) for batch in data]

    assert on_each_rank(2, job) == [[(0, 5, 4), (0, 5, 4)], [(1, 5, 4), (1, 6, 4)]]


def test_input_options() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        per_replica = tf.distribute.InputOptions(
            experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
            experimental_place_dataset_on_device=False,
            experimental_fetch_to_device=False,
        )
        with pytest.raises(NotImplementedError, match="PER_REPLICA"):
            strategy.experimental_distribute_dataset(_dataset(), per_replica)
        for mode in (tf.distribute.InputReplicationMode.PER_WORKER, tf.distribute.InputReplicationMode.PER_REPLICA):
            refused = tf.distribute.InputOptions(
                experimental_replication_mode=mode,
                experimental_place_dataset_on_device=True,
                experimental_fetch_to_device=True,
            )
            with pytest.raises(ValueError, match="place_dataset_on_device"):
                strategy.distribute_datasets_from_function(lambda context: _dataset(), refused)
        plain = tf.distribute.InputOptions(experimental_fetch_to_device=True, experimental_per_replica_buffer_size=2)
        return [
            len(list(strategy.experimental_distribute_dataset(_dataset(), plain))),
            len(list(strategy.distribute_datasets_from_function(lambda context: _dataset(), per_replica))),
        ]

    assert on_each_rank(2, job) == [[3, 3]] * 2


@pytest.mark.parametrize("size", SIZES)
def test_ragged_and_sparse_batches(size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        ragged = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3], [], [4, 5, 6], [7]])).batch(3)
        dense = tf.data.Dataset.from_tensor_slices(np.eye(5, dtype="float32")).batch(4)
        sparse = dense.map(tf.sparse.from_dense)
        distribute = strategy.experimental_distribute_dataset
        return (
            [int(_total(strategy, batch.flat_values)) for batch in distribute(ragged)],
            [float(_total(strategy, batch.values)) for batch in distribute(sparse)],
        )

    assert on_each_rank(size, job) == [([6, 22], [4.0, 1.0])] * size


@pytest.mark.parametrize("size", SIZES)
def test_values_made_for_each_replica(size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def value_of(context: Any) -> Any:
            assert context.num_replicas_in_sync == size
            return tf.constant(10.0 * context.replica_id_in_sync_group)

        values = strategy.experimental_distribute_values_from_function(value_of)
        doubled = tf.function(lambda value: strategy.run(lambda one: 2.0 * one, args=(value,)))(values)
        [local] = strategy.experimental_local_results(doubled)
        nested = strategy.experimental_local_results({"a": [doubled]})
        assert len(nested) == 1
        assert nested[0]["a"][0] is doubled
        return float(local)

    assert on_each_rank(size, job) == [20.0 * rank for rank in range(size)]
