"""A `tf.function` that a step calls knows the step that it is called in, however often it has been called before."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from thread_worlds import on_each_rank

from paceline.strategy.base import SynchronousStrategy


def rows_of_the_step() -> Any:
    return tf.distribute.get_replica_context().rows.count()


@tf.function
def counted(x: Any) -> Any:
    if tf.reduce_sum(x) < 0:  # AutoGraph's
        return tf.constant(-1, tf.int64)
    return rows_of_the_step()


@tf.function(autograph=False)
def as_written(x: Any) -> Any:
    del x
    return rows_of_the_step()


@tf.function(input_signature=[tf.TensorSpec([], tf.float64), tf.TensorSpec([None], tf.float32)])
def specified(factor: Any, x: Any) -> Any:
    assert factor.dtype == tf.float64
    del x
    return rows_of_the_step()


@tf.autograph.experimental.do_not_convert
def keras_like(x: Any) -> Any:
    """As Keras calls a user's step: AutoGraph is off here, and on again in the functions."""
    return counted(x), as_written(x), specified(2, x)


class Holder:
    """With a method as such a function."""

    @tf.function
    def counted(self, x: Any) -> Any:
        return counted(x)


def _as_graph(strategy: SynchronousStrategy, holder: Holder) -> Any:
    return tf.function(lambda x: strategy.run(lambda y: (*keras_like(y), holder.counted(y)), args=(x,)))


def _eagerly(strategy: SynchronousStrategy, holder: Holder) -> Any:
    return lambda x: strategy.run(lambda y: (*keras_like(y), holder.counted(y)), args=(x,))


def _as_function(strategy: SynchronousStrategy, holder: Holder) -> Any:
    step = tf.function(lambda y: (*keras_like(y), holder.counted(y)))
    return lambda x: strategy.run(step, args=(x,))


@pytest.mark.parametrize("way", [_as_graph, _eagerly, _as_function])
def test_each_call_counts_the_rows_of_its_own_step(way: Any) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        holder = Holder()
        counts = []
        for _ in range(2):  # two steps, each traced by itself
            step = way(strategy, holder)
            counts += [[int(count) for count in step(tf.ones([rows]))] for rows in (3, 2, 3)]
        return counts

    for counts in on_each_rank(2, job):
        assert counts == 2 * [[6] * 4, [4] * 4, [6] * 4]


def test_outside_of_steps_it_is_an_ordinary_function() -> None:
    traces = []

    @tf.function
    def doubled(x: Any) -> Any:
        traces.append(x)
        return 2 * x

    def job(strategy: SynchronousStrategy) -> Any:
        del strategy
        return [np.asarray(doubled(tf.constant(value))).tolist() for value in (1.0, 2.0)]

    assert on_each_rank(2, job) == [[2.0, 4.0], [2.0, 4.0]]
    assert len(traces) == 1
