"""TensorFlow's random operations in a step: other numbers on each rank, the same on each run; weights alike on all."""

import itertools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from thread_worlds import on_each_rank

from paceline.strategy.base import SynchronousStrategy


class Lazy(tf.Module):
    """Makes its weights in its first call, as a layer of `tf.Module` guides does."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Any] = []

    def __call__(self) -> Any:
        if not self.weights:
            self.weights = [tf.Variable(tf.random.normal([3])), tf.Variable(lambda: tf.random.normal([3]))]
        return tf.random.normal([4]), tf.nn.dropout(tf.ones([64]), 0.5)


def _own_numbers() -> Any:
    return [tf.random.uniform([]), tf.random.normal([], seed=3), tf.random.uniform([], maxval=1000, dtype=tf.int32)]


def _drawn(function: Any) -> list[Any]:
    """What `function` returns on each rank of three, as arrays."""
    tf.random.set_seed(7)
    return on_each_rank(3, lambda strategy: tf.nest.map_structure(np.asarray, function(strategy)))


@pytest.mark.parametrize("as_tf_function", [False, True])
def test_ranks_draw_different_numbers_and_a_repeated_run_the_same(as_tf_function: bool) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        draw = Lazy()
        if as_tf_function:
            step = tf.function(draw.__call__)
            return strategy.run(step), [strategy.experimental_local_results(one)[0] for one in draw.weights]
        step = tf.function(lambda: strategy.run(draw))
        return step(), [strategy.experimental_local_results(one)[0] for one in draw.weights]

    first, again = _drawn(job), _drawn(job)
    tf.nest.map_structure(np.testing.assert_array_equal, first, again)
    for part in range(2):
        draws = [numbers[part] for numbers, _ in first]
        assert not any(np.array_equal(one, other) for one, other in itertools.combinations(draws, 2))
    for _, weights in first:
        tf.nest.map_structure(np.testing.assert_array_equal, weights, first[0][1])


def test_the_chief_draws_what_one_worker_does_and_others_as_before_outside_of_steps() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def step() -> Any:
            before = tf.random.normal([4])
            inside = strategy.run(lambda: tf.random.normal([4]))
            merged = strategy.run(
                lambda: tf.distribute.get_replica_context().merge_call(lambda _: tf.random.normal([4]))
            )
            return before, inside, merged, tf.random.normal([4])

        return tf.function(step)()

    tf.random.set_seed(7)
    one = [numbers.numpy() for numbers in tf.function(lambda: [tf.random.normal([4]) for _ in range(4)])()]
    for rank, found in enumerate(_drawn(job)):
        for part, (numbers, expected) in enumerate(zip(found, one, strict=True)):
            assert np.array_equal(numbers, expected) == (rank == 0 or part != 1)


def test_a_generator_made_in_the_scope_draws_for_each_rank() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        with strategy.scope():
            generator = tf.random.Generator.from_seed(1)
        return tf.function(lambda: strategy.run(lambda: generator.normal([4])))()

    first, second, third = _drawn(job)
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)


@pytest.mark.parametrize("seed", [0, 7])
def test_single_numbers_are_alike_on_all_ranks_since_steps_branch_on_them(seed: int) -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def branch() -> Any:
            return tf.cond(tf.random.uniform([]) < 2.0, _own_numbers, _own_numbers)

        step = tf.function(lambda: strategy.run(lambda: [_own_numbers(), branch()]))
        return [step() for _ in range(3)]

    def drawn() -> list[Any]:
        tf.random.set_seed(seed)
        return on_each_rank(3, lambda strategy: tf.nest.map_structure(np.asarray, job(strategy)))

    chiefs, *others = drawn()
    for theirs in (*others, drawn()[2]):
        tf.nest.map_structure(np.testing.assert_array_equal, chiefs, theirs)
    assert len({float(step[0][0]) for step in chiefs}) == 3


def test_single_numbers_of_rows_differ() -> None:
    def job(strategy: SynchronousStrategy) -> Any:
        def step() -> Any:
            return tf.map_fn(lambda row: row + tf.random.uniform([]), tf.zeros([4]))

        return tf.function(lambda: strategy.run(step))()

    first, second, third = _drawn(job)
    assert len({*first, *second, *third}) == 12


def test_outside_of_steps_nothing_is_another_without_a_seed() -> None:
    with tf.Graph().as_default() as graph:
        drawn = tf.random.uniform([])
    assert graph.seed is None
    assert drawn.op.get_attr("seed") == 0
    assert drawn.op.get_attr("seed2") == 0


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0, tf.float32),
        (0, "int64"),
        (0, None),
        (False, None),
        (np.ones(2), tf.float32),
        ([1, 2], tf.float64),
        (lambda: 1, tf.float16),
        (lambda: np.ones(2), tf.float32),
        (lambda: keras.initializers.Constant(3)([2], "float32"), None),
        ("text", None),
    ],
)
def test_variables_made_in_the_graph_of_a_step_get_their_dtype(value: Any, dtype: Any) -> None:
    expected = tf.Variable(value, dtype=dtype)

    def job(strategy: SynchronousStrategy) -> Any:
        made: list[Any] = []

        def step() -> Any:
            if not made:
                made.append(tf.Variable(value, dtype=dtype))
            return tf.identity(made[0])

        return tf.function(lambda: strategy.run(step))()

    for found in on_each_rank(2, job):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
