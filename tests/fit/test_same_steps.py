"""Graphs of steps are compared over ranks by what they do, and not by their names."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from paceline.fit.same_steps import digests_of, first_difference


def _digests(function: Any) -> Any:
    traced = tf.function(function).get_concrete_function(tf.TensorSpec([None, 3]))
    return np.frombuffer(b"".join(digests_of(traced.graph.as_graph_def())), np.int64)


def _named(x: Any) -> Any:
    with tf.name_scope("another"):
        return tf.reduce_sum(tf.square(x, name="of_its_own") * 2.0)


def _branch(by: float) -> Any:
    return lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * by, lambda: x)


def test_names_do_not_count() -> None:
    assert np.array_equal(_digests(lambda x: tf.reduce_sum(tf.square(x) * 2.0)), _digests(_named))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x * 2.0, lambda x: x * 3.0),
        (lambda x: x * 2.0, lambda x: x + 2.0),
        (lambda x: tf.cast(x, tf.int32), lambda x: tf.cast(x, tf.int64)),
        (lambda x: x * 2.0, lambda x: tf.identity(x) * 2.0),
        (_branch(2.0), _branch(3.0)),
        (lambda x: tf.random.uniform([], seed=1), lambda x: tf.random.uniform([], seed=2)),
    ],
    ids=["constant", "operation", "attribute", "length", "constant in a branch", "seed"],
)
def test_what_is_computed_counts(one: Any, other: Any) -> None:
    assert not np.array_equal(_digests(one), _digests(other))


def test_the_first_difference_is_found() -> None:
    chiefs = np.array([1, 2, 3])
    assert first_difference([chiefs, chiefs, np.array([1, 2, 4])]) == 2
    assert first_difference([chiefs, np.array([1, 9, 3]), np.array([1, 2, 4])]) == 1
    assert first_difference([chiefs, np.array([1, 2])]) == 2
