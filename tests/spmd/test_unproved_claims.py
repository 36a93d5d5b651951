"""Steps in which a rule could claim more than is true: of sizes, lists, types, and batches of one row."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.spmd.rank_threads import Step, assert_as_one_worker

_RNG = np.random.default_rng(0)
_ROWS = _RNG.standard_normal((5, 3))
_NUMBERS = _RNG.integers(0, 4, (5, 3))
_WORDS = np.array([b"a", b"bb", b"c", b"a", b"d"])

_MORE_ROWS = np.arange(30.0).reshape(10, 3)


def _mean_of_integers(x: Any) -> Any:
    return tf.reduce_mean(x), tf.reduce_mean(x, 0), tf.reduce_mean(tf.reduce_sum(x, 0))


def _quotient_of_integers(x: Any) -> Any:
    total = tf.reduce_sum(x, 0)
    return tf.raw_ops.Div(x=total, y=tf.constant([2, 3, 2], x.dtype)) + tf.raw_ops.Div(x=total, y=total * 0 + 2)


def _elements_of_different_sizes(x: Any) -> Any:
    some = tf.size(tf.unique(tf.constant([1, 2, 1]))[0])
    items = tf.TensorArray(x.dtype, 2, infer_shape=False, clear_after_read=False)
    items = items.write(0, x[:, : some - 1]).write(1, x[:, :some])
    first, second = items.read(0), items.read(1)
    return tf.shape(first), tf.shape(second), tf.reshape(first, [-1]), tf.ones(tf.shape(second))


def _more_rows_into_a_list(x: Any) -> Any:
    before = tf.TensorArray(x.dtype, 2, infer_shape=False).write(0, tf.constant(_MORE_ROWS)).write(1, x)
    after = tf.TensorArray(x.dtype, 2, infer_shape=False).write(0, x).write(1, tf.constant(_MORE_ROWS))
    return before.read(0), before.read(1), after.read(0), after.read(1)


def _lists_without_rules(x: Any) -> Any:
    scattered = tf.TensorArray(x.dtype, 3).scatter([0, 2, 1], tf.transpose(x))
    joined = tf.TensorArray(x.dtype, 2, infer_shape=False).write(0, x).write(1, x * 2)
    return scattered.stack(), scattered.read(1) * 2, scattered.gather([1, 0]), joined.concat()


def _list_for_a_named_size(x: Any) -> Any:
    items = tf.TensorArray(x.dtype, 2, element_shape=[5, 3])
    return items.write(0, tf.ensure_shape(x, [5, 3])).write(1, tf.ensure_shape(x * 2, [5, 3])).stack()


def _growing(axis: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, y = tf.while_loop(
                lambda turn, _: turn < 3,
                lambda turn, value: (turn + 1, tf.concat([value, tf.sin(value * value)], axis)),
                [0, x],
                shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, None])],
            )
            loss = tf.reduce_sum(y * y)
        return y, tape.gradient(loss, x)

    return run


def _loops_in_loops(x: Any) -> Any:
    def inner(turn: Any, value: Any) -> Any:
        return turn + 1, tf.tanh(value) + tf.reduce_mean(value)

    def outer(turn: Any, value: Any, total: Any) -> Any:
        _, other = tf.while_loop(lambda i, _: i < turn + 1, inner, [0, value])
        value = tf.cond(tf.reduce_sum(other) > 0, lambda: other, lambda: value * other)
        return turn + 1, value, total + tf.reduce_sum(value, 0)

    with tf.GradientTape() as tape:
        tape.watch(x)
        _, y, total = tf.while_loop(lambda turn, *_: turn < 3, outer, [0, x, tf.zeros(3, x.dtype)])
        loss = tf.reduce_sum(y * total)
    return y, total, tape.gradient(loss, x)


def _size_read_in_a_branch(x: Any) -> Any:
    different = tf.unique(tf.cast(x[:, 0] * 3, tf.int32))[0]
    y = tf.cond(
        tf.reduce_sum(x) > 0,
        lambda: tf.reshape(tf.ones([tf.shape(different)[0], 2]), [-1]),
        lambda: tf.zeros([tf.shape(different)[0] * 2]),
    )
    with tf.control_dependencies([y]):
        return y, tf.ones([tf.shape(different)[0]]) + tf.reduce_sum(y)


def _part_of_rows_from_a_branch(x: Any) -> Any:
    some = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.boolean_mask(x, x[:, 0] > 0), lambda: x[:1])
    return some, tf.shape(some), tf.ones(tf.shape(some)), tf.reshape(some, [-1])


def _indices_where_a_rank_has_nothing(x: Any) -> Any:
    return tf.gather_nd(tf.transpose(x), [[0], [1]]), tf.gather(x, [0, 2, 1], axis=1)


def _one_row_is_repeated(x: Any) -> Any:
    times = tf.cast(tf.reduce_sum(tf.constant([1.0, 2.0])), tf.int32)
    column = tf.constant([[1.0], [2.0], [3.0]], x.dtype)
    return tf.cond(
        tf.shape(x)[0] < 2, lambda: (tf.broadcast_to(x, [times, 3]), x * column), lambda: (x, tf.transpose(x))
    )


def _one_row_for_all(x: Any) -> Any:
    row = tf.constant([[0.2, 0.3, 0.5]], x.dtype)
    one = tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=x, labels=row)
    other = tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=row, labels=tf.nn.softmax(x))
    return *one, *other


def _narrow_integers(x: Any) -> Any:
    small = tf.constant(200, tf.uint8) + tf.cast(tf.shape(x)[1] * 20, tf.uint8)
    beyond = tf.constant(2**30) * tf.shape(x)[1]
    return tf.zeros([tf.cast(small, tf.int32)]), tf.zeros([tf.where(beyond < 0, 3, 2)])


def _names_of_scopes(x: Any) -> Any:
    with tf.name_scope("scope"):
        return tf.identity(tf.identity(x, name="_inner") * 2, name="_outer")


_OF_ROWS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "mean of integers": (_mean_of_integers, _NUMBERS),
    "quotient of integers": (_quotient_of_integers, _NUMBERS),
    "elements of different sizes": (_elements_of_different_sizes, _ROWS),
    "more rows into a list": (_more_rows_into_a_list, _ROWS),
    "lists without rules": (_lists_without_rules, _ROWS),
    "loops in loops": (_loops_in_loops, _ROWS),
    "more rows in each turn": (_growing(0), _ROWS),
    "more columns in each turn": (_growing(1), _ROWS),
    "size read in a branch": (_size_read_in_a_branch, _ROWS),
    "part of rows from a branch": (_part_of_rows_from_a_branch, _ROWS),
    "indices where a rank has nothing": (_indices_where_a_rank_has_nothing, _ROWS),
    "one row is repeated": (_one_row_is_repeated, _ROWS),
    "one row for all": (_one_row_for_all, _ROWS),
    "narrow integers": (_narrow_integers, _ROWS),
    "names of scopes": (_names_of_scopes, _ROWS),
}


@pytest.mark.parametrize("counts", [(2, 0, 3), (0, 1)])
@pytest.mark.parametrize("name", _OF_ROWS)
def test_what_is_not_proved_is_not_claimed(name: str, counts: tuple[int, ...]) -> None:
    function, batch = _OF_ROWS[name]
    assert_as_one_worker(lambda: Step(function), [batch[: sum(counts)]], counts)


def _tables() -> Step:
    one = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "bb"]), tf.constant([1, 2], tf.int64)), -1
    )
    several = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, tf.constant([0.0, 1.0]))
    several.insert(tf.constant(["a", "c"]), tf.constant([[2.0, 3.0], [4.0, 5.0]]))

    def run(words: Any) -> Any:
        found = several.lookup(words)
        several.insert(words[:1], found[:1] + 1.0)
        return one.lookup(words), found, tf.reduce_sum(found, 1), several.lookup(words), several.size()

    step = Step(run)
    _KEPT.append((one, several))
    return step


_KEPT: list[Any] = []
"""Tables live as long as someone in Python knows them."""


def test_a_list_for_a_named_size() -> None:
    assert_as_one_worker(lambda: Step(_list_for_a_named_size), [_ROWS], (2, 0, 3))


def test_tables_with_several_values_for_a_key() -> None:
    assert_as_one_worker(_tables, [_WORDS], (2, 0, 3))
