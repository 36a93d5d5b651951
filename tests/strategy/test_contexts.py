"""Where a piece of code runs, as `tf.distribute` tells it, and the strategy as an object."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from thread_worlds import on_each_rank

from paceline.strategy.base import SynchronousStrategy

SIZES = (1, 2, 3)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("in_function", [False, True])
def test_contexts(in_function: bool, size: int) -> None:
    def job(strategy: SynchronousStrategy) -> None:
        def in_update(variable: Any) -> None:
            assert tf.distribute.in_cross_replica_context()
            assert tf.distribute.get_strategy() is strategy

        def merge(of: Any, value: Any, keyword: Any) -> Any:
            assert of is strategy
            assert tf.distribute.get_replica_context() is None
            assert tf.distribute.in_cross_replica_context()
            return strategy.reduce("SUM", value, axis=None) + keyword

        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            assert isinstance(context, tf.distribute.ReplicaContext)
            assert context.strategy is strategy
            assert context.num_replicas_in_sync == strategy.num_replicas_in_sync == size
            assert tf.distribute.has_strategy()
            assert tf.distribute.get_strategy() is strategy
            assert not tf.distribute.in_cross_replica_context()
            assert len(context.devices) == 1
            with pytest.raises(RuntimeError, match="cross-replica"):
                strategy.reduce("SUM", tf.constant(1.0), axis=None)
            number = context.replica_id_in_sync_group
            assert tf.is_tensor(number)
            assert number.dtype == tf.int32
            return number, context.merge_call(merge, args=(tf.constant(1.0),), kwargs={"keyword": 0.5})

        assert not tf.distribute.has_strategy()
        assert tf.distribute.get_replica_context().num_replicas_in_sync == 1
        run = tf.function(lambda: strategy.run(replica)) if in_function else lambda: strategy.run(replica)
        number, merged = run()
        assert int(number) == strategy.world.rank
        assert float(merged) == size + 0.5
        with strategy.scope():
            assert tf.distribute.has_strategy()
            assert tf.distribute.in_cross_replica_context()
            assert tf.distribute.get_replica_context() is None
            strategy.extended.update(tf.Variable(1.0), in_update)
            with strategy.scope():
                assert tf.distribute.get_strategy() is strategy

    on_each_rank(size, job)


def test_an_error_in_a_replica_leaves_the_contexts_as_they_were() -> None:
    def job(strategy: SynchronousStrategy) -> None:
        def fail(*_: Any) -> None:
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            strategy.run(fail)
        with pytest.raises(KeyError, match="mine"):
            strategy.run(lambda: tf.distribute.get_replica_context().merge_call(fail))
        with pytest.raises(ValueError, match="positional args"):
            strategy.run(fail, args=3)
        assert not tf.distribute.has_strategy()

    on_each_rank(2, job)


@pytest.mark.parametrize("size", SIZES)
def test_losses_of_custom_loops(size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def replica() -> Any:
            per_example = tf.constant([1.0, 3.0])
            return (
                tf.nn.compute_average_loss(per_example),
                tf.nn.compute_average_loss(per_example, global_batch_size=8),
                tf.nn.compute_average_loss(per_example, sample_weight=[0.0, 1.0]),
                tf.nn.scale_regularization_loss(tf.constant(6.0)),
            )

        with strategy.scope(), pytest.raises(RuntimeError, match="cross replica"):
            tf.nn.compute_average_loss(tf.constant([1.0]))
        return [float(strategy.reduce("SUM", loss, axis=None)) for loss in strategy.run(replica)]

    for losses in on_each_rank(size, job):
        np.testing.assert_allclose(losses, [2.0, size * 0.5, 1.5, 6.0], rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2])
def test_the_strategy_as_an_object(size: int) -> None:
    def job(strategy: SynchronousStrategy) -> None:
        extended = strategy.extended
        assert extended.worker_devices == extended.parameter_devices
        [device] = extended.worker_devices
        assert "CPU:0" in device
        assert extended.experimental_require_static_shapes is False
        assert copy.deepcopy(strategy) is strategy
        assert copy.deepcopy({"strategy": [strategy]})["strategy"][0] is strategy
        with pytest.raises(RuntimeError, match="deepcopy"):
            copy.copy(strategy)
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(strategy)

    on_each_rank(size, job)


@pytest.mark.parametrize("size", SIZES)
def test_checkpoints(size: int, tmp_path: Path) -> None:
    """A sum over ranks is saved as the sum, and each rank is given its part of it back."""

    def job(strategy: SynchronousStrategy) -> Any:
        def variables() -> dict[str, Any]:
            with strategy.scope():
                return {
                    "written": tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN),
                    "summed": tf.Variable(
                        0.0,
                        aggregation=tf.VariableAggregation.SUM,
                        synchronization=tf.VariableSynchronization.ON_READ,
                    ),
                }

        def replica() -> None:
            number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
            saved["written"].assign(number)
            saved["summed"].assign(number + 1.0)

        saved = variables()
        strategy.run(replica)
        folder = tmp_path / str(strategy.world.rank)
        with strategy.scope():
            path = tf.train.CheckpointManager(tf.train.Checkpoint(**saved), str(folder), max_to_keep=1).save()
        restored = variables()
        tf.train.Checkpoint(**restored).restore(path).assert_consumed()

        later = tf.train.Checkpoint()
        status = later.restore(path)
        with strategy.scope():
            later.written = tf.Variable(9.0)
        status.expect_partial()
        return [*(float(variable) for variable in (*saved.values(), *restored.values())), float(later.written)]

    mean, total = (size - 1) / 2, size * (size + 1) / 2
    for numbers in on_each_rank(size, job):
        np.testing.assert_allclose(numbers, [mean, total, mean, total, mean], rtol=1e-6)
