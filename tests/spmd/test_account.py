"""The account of a divided step: its messages, their bytes, and what every rank computes, as functions of the rows."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from tests.spmd.rank_threads import NotedMessages, Step, by_ranks, traced
from tests.strategy.thread_worlds import on_each_rank

from paceline.spmd.account import Account
from paceline.spmd.partition import Partitioner

ROWS, WIDTH = 8, 5
BIGGER = 1000
FLOAT32, INT64 = 4, 8
_RNG = np.random.default_rng(0)
FEATURES = _RNG.random((ROWS, 6)).astype("float32")
LABELS = _RNG.integers(0, 3, ROWS)

Calls = dict[str, int]


def _keras_step(*parts: Any, loss: Any = "sparse_categorical_crossentropy", optimizer: str = "sgd") -> Step:
    model = keras.Sequential([keras.Input((6,)), *parts])
    model.compile(optimizer, loss, metrics=["accuracy"] if isinstance(loss, str) else [])
    model.optimizer.build(model.trainable_variables)
    return Step(lambda *batch: model.train_step(batch), lambda: model.trainable_variables)


def _account(step: Step, *batch: np.ndarray, num_rows: int | None = None) -> tuple[Account, Calls]:
    """The account of a step, and how often it has called each kind of message."""
    [messages] = on_each_rank(1, NotedMessages)
    partitioner = Partitioner(messages)
    function = traced(step, batch, for_one_length=num_rows is not None)
    partitioner.divided(function, [True] * len(batch), num_rows).get_concrete_function()
    return partitioner.account, {kind: messages.sent.count(kind) for kind in ("sum", "gather", "call")}


def _bytes_of(variables: Sequence[Any]) -> int:
    return sum(int(np.prod(one.shape)) * FLOAT32 for one in variables)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamax", "nadam", "rmsprop"])
def test_a_plain_step_sends_its_gradients_and_metrics_once(optimizer: str) -> None:
    """Adam needs a gradient for its square, too: what its mean moves by follows from the same sum."""
    step = _keras_step(layers.Dense(WIDTH), layers.Dense(3, "softmax"), optimizer=optimizer)
    account, calls = _account(step, FEATURES, LABELS)
    costs = account.costs(ROWS)
    assert (costs.num_messages, costs.num_messages_in_loops) == (1, 0)
    assert calls == {"sum": 1, "gather": 0, "call": 0}
    gradients = _bytes_of(step.variables())
    assert gradients < costs.num_bytes("sum") <= gradients + 8 * FLOAT32, "and sums of the loss and metrics"
    assert costs.num_bytes("gather") == 0
    assert account.costs(BIGGER).num_bytes("sum") == costs.num_bytes("sum"), "whatever the number of rows"
    assert costs.whole_share < 0.1


def _contrastive(y_true: Any, y_pred: Any) -> Any:
    scores = ops.matmul(y_pred, ops.transpose(y_pred))
    return ops.mean(ops.logsumexp(scores, axis=1) - ops.diagonal(scores))


def test_gathered_rows_have_bytes_and_an_operation() -> None:
    account, _ = _account(_keras_step(layers.Dense(WIDTH), loss=_contrastive), FEATURES, LABELS)
    costs = account.costs(BIGGER)
    [product] = [one for one in costs.sent if one.kind == "gather" and one.operations[0].type == "MatMul"]
    assert product.num_bytes == BIGGER * WIDTH * FLOAT32
    assert any(frame.name == "_contrastive" for frame in product.operations[0].traceback)


def test_statistics_of_the_batch_take_messages_of_their_own() -> None:
    plain, _ = _account(_keras_step(layers.Dense(WIDTH), layers.Dense(3)), FEATURES, LABELS)
    normed, _ = _account(
        _keras_step(layers.Dense(WIDTH), layers.BatchNormalization(), layers.Dense(3)), FEATURES, LABELS
    )
    assert normed.costs(ROWS).num_messages > plain.costs(ROWS).num_messages
    assert normed.costs(ROWS).num_bytes("gather") == 0


@pytest.mark.parametrize("num_rows", [None, ROWS], ids=["any number of rows", "this number of rows"])
def test_work_on_sorted_rows_is_every_ranks(num_rows: int | None) -> None:
    """An operation on rows in an order that only all rows tell is computed whole, and so is what follows."""

    def function(rows: Any) -> Any:
        ordered = tf.sort(rows, axis=0)
        return tf.reduce_sum(tf.matmul(ordered, ordered, transpose_b=True)) + tf.reduce_sum(rows)

    costs = _account(Step(function), FEATURES, num_rows=num_rows)[0].costs(ROWS)
    gathered = [one for one in costs.sent if one.kind == "gather"]
    assert [one.num_bytes for one in gathered] == [FEATURES.nbytes]
    assert costs.whole_share > 0.8
    assert gathered[0].share == pytest.approx(costs.whole_share, rel=0.05)


def test_work_on_own_rows_is_nobody_elses() -> None:
    weights = tf.ones((6, 64))
    costs = _account(Step(lambda rows: tf.reduce_sum(tf.matmul(rows, weights))), FEATURES)[0].costs(ROWS)
    product, sum_of_rows = 2 * ROWS * 64 * 6, ROWS * 64
    assert costs.work == product + sum_of_rows
    assert costs.whole_share == costs.replicated_share == 0


def test_messages_in_a_loop_are_told_apart() -> None:
    def function(rows: Any) -> Any:
        centred = lambda turn, value: (turn + 1, value * 1.1 - tf.reduce_mean(value, 0))  # noqa: E731
        return tf.reduce_sum(tf.while_loop(lambda turn, _: turn < 3, centred, [0, rows], maximum_iterations=3)[1])

    account, calls = _account(Step(function), FEATURES)
    costs = account.costs(ROWS)
    assert (costs.num_messages, costs.num_messages_in_loops) == (1, 1)
    assert calls["sum"] == 2
    [mean, _] = costs.sent
    assert mean.num_bytes == 3 * 6 * FLOAT32, "one mean in each of three turns"


def test_python_answers_in_a_message() -> None:
    def function(rows: Any) -> Any:
        called = tf.numpy_function(lambda array: array.astype("int64"), [rows], tf.int64)
        called.set_shape([None, 6])
        return tf.reduce_sum(called)

    account, calls = _account(Step(function), FEATURES)
    costs = account.costs(ROWS)
    assert calls == {"sum": 0, "gather": 1, "call": 1}
    assert costs.num_messages == 2
    assert costs.num_bytes("gather") == FEATURES.nbytes


def test_open_sizes_are_those_of_the_batch() -> None:
    account = Account()
    partitioner = Partitioner(on_each_rank(1, NotedMessages)[0])
    step = tf.function(lambda rows: tf.sort(rows, axis=0), autograph=False)
    partitioner.divided(step.get_concrete_function(tf.TensorSpec([None, None])), [True]).get_concrete_function()
    account = partitioner.account
    assert account.costs(ROWS, [[ROWS, 3]]).num_bytes("gather") == ROWS * 3 * FLOAT32


def _images() -> Step:
    images = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Reshape((3, 2, 1)),
            layers.Conv2D(4, 2),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    images.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images.optimizer.build(images.trainable_variables)
    return Step(lambda *batch: images.train_step(batch), lambda: images.variables)


MADE: dict[str, Callable[[], Step]] = {
    "dense": lambda: _keras_step(layers.Dense(WIDTH), layers.Dense(3)),
    "pairs of rows": lambda: _keras_step(layers.Dense(WIDTH), loss=_contrastive),
    "normalized images": _images,
}


@pytest.mark.parametrize("name", MADE)
def test_the_account_has_the_messages_that_ranks_send(name: str) -> None:
    account, _ = _account(MADE[name](), FEATURES, LABELS)
    _, sent = by_ranks(MADE[name], [FEATURES, LABELS], (5, 3), num_steps=1)
    assert [message.kind for message in account.messages] == sent
    assert account.costs(ROWS).num_messages == len(sent)
