"""What is computed from shares of a loss is recognised in graphs, operation by operation; and the tape that asks."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from paceline.fit.replica_loops.shares import is_share, mark_as_own, mark_as_share, terms
from paceline.seams.install import install_with_keras
from paceline.strategy.replica_context import StepRows

COMPUTED: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "half": (lambda share, _: share / 2.0, True),
    "sum of all entries": (lambda share, _: tf.reduce_sum(share), True),
    "negated sum": (lambda share, _: -(share + share), True),
    "sum with a number of its own": (lambda share, own: share + own, False),
    "product with a number of its own": (lambda share, own: share * own, False),
    "function": (lambda share, _: tf.exp(share), False),
    "share of a group": (lambda share, own: tf.identity_n([own, share])[1], True),
    "number of a group": (lambda share, own: tf.identity_n([share, own])[1], False),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_from_shares_is_one_if_it_commutes_with_a_sum(name: str) -> None:
    compute, expected = COMPUTED[name]
    with tf.Graph().as_default():
        share = mark_as_share(tf.constant(1.0) + tf.random.uniform([]))
        assert is_share(compute(share, tf.random.uniform([]))) is expected


SUMS: dict[str, tuple[Callable[[Any, Any, Any], Any], list[tuple[float, bool]]]] = {
    "share": (lambda share, own, x: 2.0 * share, [(1.0, True)]),
    "own mean": (lambda share, own, x: tf.reduce_mean(x) + own, [(1.0, False)]),
    "both": (lambda share, own, x: share - 0.5 * (own - share), [(1.0, True), (-0.5, False), (0.5, True)]),
    "both, divided": (lambda share, own, x: (share + own) / 4.0, [(0.25, True), (0.25, False)]),
    "mean of both": (lambda share, own, x: tf.reduce_mean(tf.stack([share, own])), [(0.5, True), (0.5, False)]),
    "sum over rows": (lambda share, own, x: tf.reduce_sum(x) / 8.0 + own, [(0.125, True), (1.0, False)]),
    "mean by a sum": (lambda share, own, x: tf.reduce_sum(x) / tf.cast(tf.size(x), tf.float32), [(1.0, False)]),
    "function of both": (lambda share, own, x: tf.exp(share + own), [(1.0, True)]),
    "sum of weights": (lambda share, own, x: tf.reduce_sum(tf.random.uniform([3])), [(1.0, False)]),
    "made an own one": (lambda share, own, x: 3.0 * mark_as_own(share * own), [(1.0, False)]),
}


@pytest.mark.parametrize("name", SUMS)
def test_the_terms_of_a_loss_are_told_apart(name: str) -> None:
    compute, expected = SUMS[name]
    with tf.Graph().as_default():
        share = mark_as_share(tf.constant(1.0) + tf.random.uniform([]))
        x = tf.compat.v1.placeholder(tf.float32, [None, 3])
        rows = step_rows(tf.shape(x)[0])
        found = terms(compute(share, tf.random.uniform([]), x), rows)
        assert [(term.factor, term.is_share) for term in found] == expected


@pytest.mark.parametrize("divisor", [1.0, 4.0, 8.0, 12.0])
def test_with_batches_of_a_fixed_size_a_sum_may_be_a_mean(divisor: float) -> None:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [4, 3])
        [term] = terms(tf.reduce_sum(x) / divisor, step_rows(tf.constant(4)))
        assert not term.is_share


ADDED_UP: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "rows": (lambda x: tf.reduce_sum(x, axis=1), True),
    "halves of rows": (lambda x: 0.5 * x, True),
    "rows, each divided by their number": (lambda x: x / tf.cast(tf.shape(x)[0], tf.float32), False),
    "rows weighed by a part of a sum": (lambda x: x * (x[:, :1] / tf.reduce_sum(x)), False),
    "means of rows": (lambda x: tf.reduce_mean(x, axis=0, keepdims=True) + tf.zeros_like(x), False),
    "no data": (lambda x: tf.random.uniform([tf.random.uniform([], 1, 5, tf.int32)]), False),
}


@pytest.mark.parametrize("name", ADDED_UP)
def test_only_a_sum_of_rows_that_averages_nothing_is_a_share(name: str) -> None:
    compute, expected = ADDED_UP[name]
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 3])
        [term] = terms(tf.reduce_sum(compute(x)), step_rows(tf.shape(x)[0]))
        assert term.is_share is expected


def test_what_is_stopped_stays_so_and_is_told_apart() -> None:
    with tf.Graph().as_default():
        share, own = mark_as_share(tf.random.uniform([])), tf.random.uniform([])
        found = terms(own + tf.stop_gradient(share + own), step_rows(tf.constant(4)))
        assert [(term.is_share, term.is_stopped) for term in found] == [(False, False), (True, True), (False, True)]


def test_many_losses_added_one_by_one_are_walked_once() -> None:
    with tf.Graph().as_default():
        total = mark_as_share(tf.random.uniform([]))
        for _ in range(1500):
            total = total + tf.random.uniform([])
        assert len(terms(total, step_rows(tf.constant(4)))) == 1501


def test_a_loss_in_a_loop_of_the_step_counts_for_all_that_comes_out_of_loops() -> None:
    with tf.Graph().as_default():
        rows = step_rows(tf.constant(4))
        own = tf.random.uniform([])

        def body(total: Any) -> list[Any]:
            rows.note_share()
            return [total + mark_as_share(tf.random.uniform([]))]

        looped = tf.while_loop(lambda total: total < 3.0, body, [0.0])[0]
        assert [term.is_share for term in terms(looped + own, rows)] == [True, False]
        assert [term.is_share for term in terms(own, rows)] == [False]


def test_eagerly_the_step_decides() -> None:
    rows = step_rows(tf.constant(4))
    own, share = tf.constant(1.0), mark_as_share(tf.constant(1.0))
    assert [terms(value, rows)[0].is_share for value in (own, share)] == [False, True]
    rows.note_share()
    assert [terms(value, rows)[0].is_share for value in (own, mark_as_own(tf.constant(1.0)))] == [True, False]


def step_rows(local: Any) -> StepRows:
    collectives: Any = None
    return StepRows(local, 2, collectives)


def test_a_tape_takes_its_arguments_by_position_as_tensorflows_does() -> None:
    install_with_keras()
    used, unused = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([used, unused])
        target = used**2
    gradients = tape.gradient(target, [used, unused], tf.constant(10.0), tf.UnconnectedGradients.ZERO)
    assert [float(gradient) for gradient in gradients] == [40.0, 0.0]
