"""Variables made in a scope: `aggregation` and `synchronization` mean what they mean in `tf.distribute`.

The expected values are those of TensorFlow's own strategies with as many replicas. One replica holds 10 and gets its
number + 1; a Python number is taken as it is.
"""

import copy
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from thread_worlds import on_each_rank

from paceline.seams.install import install_with_keras
from paceline.strategy.base import SynchronousStrategy

install_with_keras()

SUM, MEAN = tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN
FIRST, NONE = tf.VariableAggregation.ONLY_FIRST_REPLICA, tf.VariableAggregation.NONE
AUTO, ON_WRITE, ON_READ = (
    tf.VariableSynchronization.AUTO,
    tf.VariableSynchronization.ON_WRITE,
    tf.VariableSynchronization.ON_READ,
)
SIZES = (1, 2, 3)


def _number(strategy: SynchronousStrategy) -> Any:
    """1, 2, … : a tensor, this replica's number + 1."""
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1.0


def _combined(aggregation: Any, of_ranks: list[float]) -> list[float]:
    """What each rank has of the ranks' values."""
    one = {SUM: sum(of_ranks), MEAN: sum(of_ranks) / len(of_ranks), FIRST: of_ranks[0]}.get(aggregation)
    return of_ranks if one is None else [one] * len(of_ranks)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("in_function", "synchronization"), [(False, AUTO), (True, ON_WRITE)])
@pytest.mark.parametrize("aggregation", [SUM, MEAN, FIRST, NONE])
def test_on_write_a_replicas_value_is_combined(
    aggregation: Any, synchronization: Any, in_function: bool, size: int
) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        values = []
        for operation in ("assign", "assign_add", "assign_sub"):
            with strategy.scope():
                variable = tf.Variable(10.0, aggregation=aggregation, synchronization=synchronization)

            def run(variable: Any = variable, operation: str = operation) -> None:
                strategy.run(lambda: getattr(variable, operation)(_number(strategy)))

            (tf.function(run) if in_function else run)()
            values.append(float(variable))
            assert float(strategy.experimental_local_results(variable)[0]) == values[-1]
        return values

    of_ranks = _combined(aggregation, [rank + 1.0 for rank in range(size)])
    expected = [[value, 10.0 + value, 10.0 - value] for value in of_ranks]
    np.testing.assert_allclose(on_each_rank(size, job), expected, rtol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("aggregation", [SUM, MEAN, FIRST])
def test_on_read_each_replica_has_its_own_until_somebody_reads_outside(aggregation: Any, size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        with strategy.scope():
            variable = tf.Variable(10.0, aggregation=aggregation, synchronization=ON_READ)

        def replica() -> Any:
            return variable.assign_add(_number(strategy)).read_value()

        in_replica = float(tf.function(lambda: strategy.run(replica))())
        own = float(strategy.experimental_local_results(variable)[0])
        with strategy.scope():
            in_scope = float(variable.read_value())
        return [in_replica, own, float(variable), in_scope, float(variable.value()), float(variable + 0.0)]

    of_ranks = [11.0 + rank for rank in range(size)]
    whole = _combined(aggregation, of_ranks)[0]
    expected = [[own, own, *[whole] * 4] for own in of_ranks]
    np.testing.assert_allclose(on_each_rank(size, job), expected, rtol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("aggregation", [SUM, MEAN, FIRST])
def test_variables_are_combined_like_tensors_and_numbers_are_the_same_everywhere(aggregation: Any, size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        with strategy.scope():
            by_number, by_variable = (tf.Variable(1.0, aggregation=aggregation) for _ in range(2))
            source = tf.Variable(2.0, aggregation=MEAN)
            own = tf.Variable(2.0, aggregation=aggregation, synchronization=ON_READ)

        def replica() -> None:
            by_number.assign_add(2)
            by_variable.assign_add(source)
            own.assign(source)
            own.assign_add(1)

        tf.function(lambda: strategy.run(replica))()
        return [float(by_number), float(by_variable), float(own)]

    total = _combined(aggregation, [2.0] * size)[0]
    assert on_each_rank(size, job) == [[3.0, 1.0 + total, _combined(aggregation, [3.0] * size)[0]]] * size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("aggregation", [SUM, MEAN, FIRST, NONE])
def test_scattering_rows(aggregation: Any, size: int) -> None:
    """Each replica scatters as many rows as its number + 1."""

    def job(strategy: SynchronousStrategy) -> Any:
        with strategy.scope():
            variable = tf.Variable(tf.zeros([3]), aggregation=aggregation)
        rows = tf.range(strategy.world.rank + 1)

        def replica() -> None:
            variable.scatter_add(tf.IndexedSlices(tf.fill([len(rows)], 6.0), rows, tf.constant([3])))

        tf.function(lambda: strategy.run(replica))()
        if aggregation in (SUM, MEAN):
            with pytest.raises(NotImplementedError, match="scatter_max"):
                variable.scatter_max(tf.IndexedSlices([1.0], [0]))
        return np.asarray(variable).tolist()

    of_ranks = [np.array([6.0 if row <= rank else 0.0 for row in range(3)]) for rank in range(size)]
    whole = {SUM: sum(of_ranks), MEAN: sum(of_ranks) / size, FIRST: of_ranks[0]}.get(aggregation)
    expected = of_ranks if whole is None else [whole] * size
    np.testing.assert_allclose(on_each_rank(size, job), expected)


def test_assigning_outside_of_replicas() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        with strategy.scope():
            written = tf.Variable(0.0, aggregation=SUM)
            total = tf.Variable(0.0, aggregation=SUM, synchronization=ON_READ)
            mean = tf.Variable(0.0, aggregation=MEAN, synchronization=ON_READ)
        for variable in (written, total, mean):
            variable.assign(8.0)
        with pytest.raises(ValueError, match="assign_add"):
            total.assign_add(1.0)
        parts = [float(strategy.experimental_local_results(variable)[0]) for variable in (written, total, mean)]
        return parts, [float(variable) for variable in (written, total, mean)]

    assert on_each_rank(2, job) == [([8.0, 4.0, 8.0], [8.0, 8.0, 8.0])] * 2


def test_what_has_no_meaning_over_replicas_is_refused() -> None:
    def job(strategy: SynchronousStrategy) -> None:
        with strategy.scope():
            with pytest.raises(ValueError, match="synchronization"):
                tf.Variable(1.0, synchronization=tf.VariableSynchronization.NONE)
            with pytest.raises(ValueError, match="non-floating"):
                tf.Variable(1, aggregation=MEAN)
            unread = tf.Variable(1.0, synchronization=ON_READ)
        with pytest.raises(ValueError, match="Could not convert"):
            unread.read_value()

    on_each_rank(2, job)


@pytest.mark.parametrize("size", SIZES)
def test_a_variable_is_what_a_script_takes_a_variable_for(size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        with strategy.scope():
            variable = tf.Variable([2.0, 3.0], name="both")
            number = tf.Variable(5)
            with strategy.extended.colocate_vars_with(variable):
                beside = tf.Variable(1.0)
        outside = tf.Variable(1.0)
        created = strategy.extended.variable_created_in_scope
        assert created(variable)
        assert created(beside)
        assert not created(outside)
        assert isinstance(variable, tf.Variable)
        assert isinstance(variable, tf.distribute.DistributedValues)
        assert tf.is_tensor(variable)
        assert variable.name == "both:0"
        assert variable.dtype == tf.float32
        assert variable.shape == [2]
        assert variable.distribute_strategy is strategy
        assert int(number) == 5
        assert bool(number)
        assert complex(number) == 5
        assert f"{float(number):.1f}" == "5.0"
        np.testing.assert_array_equal(np.asarray(variable), [2.0, 3.0])
        np.testing.assert_array_equal(variable[1:] * 2 + number.numpy(), [11.0])
        with strategy.scope():
            twin = copy.deepcopy(variable)
        twin.assign([0.0, 0.0])
        return np.asarray(variable).tolist()

    assert on_each_rank(size, job) == [[2.0, 3.0]] * size


@pytest.mark.parametrize("size", SIZES)
def test_extended_update(size: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        with strategy.scope():
            variable, other = tf.Variable(1.0, aggregation=SUM), tf.Variable(2.0)
        extended = strategy.extended

        def add(target: Any, value: Any) -> Any:
            return target.assign_add(value + other)

        with strategy.scope():
            extended.update(variable, add, args=(10.0,))
        [[updated]] = [extended.update(variable, lambda target: target + 1.0, group=False)]

        def merge(strategy: Any, value: Any) -> Any:
            assert tf.distribute.in_cross_replica_context()
            total = strategy.extended.reduce_to("SUM", value, destinations=variable)
            return strategy.extended.update(variable, add, args=(total,))

        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            assert not tf.distribute.in_cross_replica_context()
            context.merge_call(merge, args=(_number(strategy),))

        tf.function(lambda: strategy.run(replica))()
        assert float(updated) == 14.0
        return float(variable)

    assert on_each_rank(size, job) == [13.0 + size * (size + 1) / 2 + 2.0] * size


@pytest.mark.parametrize("size", [1, 2])
def test_keras_variables_talk_to_nobody(size: int) -> None:
    """Keras passes an aggregation, too; its optimizers and metrics count on plain, local variables."""

    def job(strategy: SynchronousStrategy) -> Any:
        class Layer(keras.layers.Layer):
            def build(self, shape: Any) -> None:
                self.kernel = self.add_weight(shape=(2,), aggregation="sum")
                self.own = tf.Variable(0.0, aggregation=SUM)

            def call(self, inputs: Any) -> Any:
                return inputs * self.kernel

        with strategy.scope():
            layer, metric = Layer(), keras.metrics.Mean()
            layer.build((None, 2))
            counter = keras.Variable(0.0, aggregation="only_first_replica")
        plain = [variable.value for variable in (layer.kernel, *metric.variables, counter)]
        assert not [value for value in plain if isinstance(value, tf.distribute.DistributedValues)]
        assert isinstance(layer.own, tf.distribute.DistributedValues)

        def replica() -> None:
            counter.assign(counter + _number(strategy))
            layer.own.assign_add(_number(strategy))

        strategy.run(replica)
        return float(counter), float(layer.own)

    assert on_each_rank(size, job) == [(rank + 1.0, size * (size + 1) / 2) for rank in range(size)]
