"""`paceline.explain` in one process: what it tells of real steps, that it changes nothing, and what it refuses."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from tests.spmd.rank_threads import Step, by_ranks

import paceline
from paceline.fit.explanation import Explanation, RowsOfAll

_DIGITS = Path(__file__).parents[2] / "examples" / "data" / "mnist_10k.npz"
BATCH = 64
WIDTH = 16
FLOAT32, INT64 = 4, 8
MAX_COLUMNS = 100


@pytest.fixture(scope="module")
def digits() -> Any:
    with np.load(_DIGITS) as archive:
        images = archive["x_train"][: 3 * BATCH, 2:26:2, 2:26:2, None] / 255.0
        return images.astype("float32"), archive["y_train"][: 3 * BATCH].astype("int64")


def _model(*parts: Any, loss: Any = None, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [layers.Conv2D(8, 3, activation="relu"), *parts, layers.Flatten(), layers.Dense(WIDTH)], name="digits"
    )
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=[] if callable(loss) else ["accuracy"], **options)
    return model


def _contrastive(y_true: Any, y_pred: Any) -> Any:
    scores = ops.matmul(y_pred, ops.transpose(y_pred))
    same = ops.cast(ops.equal(y_true[:, None], y_true[None, :]), scores.dtype)
    return ops.mean(ops.logsumexp(scores, axis=1) - ops.sum(scores * same, axis=1))


def _sorted(y_true: Any, y_pred: Any) -> Any:
    wide = ops.tile(ops.sort(y_pred, axis=0), (1, 64))
    return ops.mean(ops.matmul(wide, ops.transpose(wide)))


def test_a_plain_step_takes_one_message(digits: Any) -> None:
    model = _model()
    told = paceline.explain(model, digits, batch_size=BATCH)
    assert (told.num_rows, told.num_workers, told.num_messages) == (BATCH, 2, 1)
    assert told.is_worth_dividing
    assert told.rows_of_all == ()
    assert told.whole_share < 0.01
    assert 0.5 < told.worker_share < 0.6
    assert told.summed_bytes >= model.count_params() * FLOAT32
    assert "messages a step    1, and one for the number of rows" in str(told)


def test_a_users_line_is_told_with_bytes_and_share(digits: Any) -> None:
    told = paceline.explain(_model(loss=_contrastive), digits, batch_size=BATCH)
    lines = {operation: one for one in told.rows_of_all for operation in one.operations if one.line}
    assert lines["MatMul"].num_bytes == BATCH * WIDTH * FLOAT32
    assert lines["MatMul"].line == _line_of("ops.matmul(y_pred", "_contrastive")
    assert lines["Equal"].num_bytes == BATCH * INT64
    assert lines["MatMul"].line in str(told)
    assert told.is_worth_dividing


def _line_of(text: str, function: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if text in line and "_line_of" not in line]
    return f"{Path(__file__).name}:{number} in {function}"


def test_a_step_that_gathers_more_than_it_saves_says_so(digits: Any) -> None:
    told = paceline.explain(_model(loss=_sorted), digits, batch_size=3 * BATCH)
    assert told.whole_share > 0.5
    assert not told.is_worth_dividing
    assert "gathers more than it saves" in str(told)


def test_datasets_arrays_and_a_batch_are_told_alike(digits: Any) -> None:
    model = _model()
    of_arrays = paceline.explain(model, digits, batch_size=BATCH)
    dataset = tf.data.Dataset.from_tensor_slices(digits).shuffle(BATCH).batch(BATCH)
    assert paceline.explain(model, dataset) == of_arrays
    assert paceline.explain(model, dataset.map(lambda x, y: (x * 2.0, y)).prefetch(1)) == of_arrays
    assert paceline.explain(model, next(iter(dataset))) == of_arrays
    assert paceline.explain(model, [part[:BATCH] for part in digits]) == of_arrays


def test_batches_of_one_size_only_are_told_like_others(digits: Any) -> None:
    model = _model()
    dataset = tf.data.Dataset.from_tensor_slices(digits)
    fixed = paceline.explain(model, dataset.batch(BATCH, drop_remainder=True))
    free = paceline.explain(model, dataset.batch(BATCH))
    assert (fixed.num_messages, fixed.summed_bytes) == (free.num_messages, free.summed_bytes)
    assert fixed.worker_share == pytest.approx(free.worker_share, rel=0.02)


def test_a_dataset_that_tells_its_sizes_is_not_read(digits: Any) -> None:
    def unread() -> Any:
        raise AssertionError("nobody was to read this")
        yield

    spec = (tf.TensorSpec([12, 12, 1]), tf.TensorSpec([], tf.int64))
    dataset = tf.data.Dataset.from_generator(unread, output_signature=spec).batch(BATCH)
    assert paceline.explain(_model(), dataset).num_rows == BATCH


def test_nothing_changes_for_a_later_fit(digits: Any) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(digits).shuffle(BATCH, seed=1).batch(BATCH)
    explained, plain = _model(layers.Dropout(0.2)), _model(layers.Dropout(0.2))
    paceline.explain(explained, dataset)
    assert explained.built
    before = [variable.numpy() for variable in explained.variables]
    paceline.explain(explained, dataset, workers=3)
    for variable, value in zip(explained.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    explained.set_weights(plain.get_weights() if plain.built else explained.get_weights())
    assert explained.fit(dataset, verbose=0).history.keys() == {"loss"}
    assert int(explained.optimizer.iterations) == 3


def test_messages_are_those_that_ranks_send(digits: Any) -> None:
    batch = [part[:BATCH] for part in digits]

    def make() -> Step:
        model = _model(layers.BatchNormalization(), loss=_contrastive)
        model.build((None, 12, 12, 1))
        model.optimizer.build(model.trainable_variables)
        return Step(lambda *data: model.train_step(data), lambda: model.variables)

    told = paceline.explain(_model(layers.BatchNormalization(), loss=_contrastive), batch)
    _, sent = by_ranks(make, batch, (40, 24), num_steps=1)
    assert told.num_messages == len(sent)


def test_loops_over_open_lengths(digits: Any) -> None:
    """The sequences of a batch are as long as its longest: known only from the batch."""
    model = keras.Sequential([layers.Embedding(20, 4), layers.LSTM(6), layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    words = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1, 2, 3], [4], [5, 6], [7]] * 4))
    dataset = tf.data.Dataset.zip(words.map(lambda one: one.to_tensor() if hasattr(one, "to_tensor") else one), words)
    dataset = dataset.map(lambda x, _: (x, tf.reduce_sum(x) % 10)).padded_batch(8)
    told = paceline.explain(model, dataset)
    # As with a fixed length, though the gradient's loop loses the length of its list.
    assert (told.num_rows, told.num_messages, told.num_messages_in_loops) == (8, 1, 0)
    assert told.worker_share < 1


def test_more_workers_have_less_to_compute(digits: Any) -> None:
    two, four = (paceline.explain(_model(), digits, workers=workers) for workers in (2, 4))
    assert four.worker_share < 0.6 * two.worker_share
    assert four.summed_bytes == two.summed_bytes


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda model: {"model": keras.Sequential([layers.Dense(1)])}, "not a compiled Keras model"),
        (lambda model: {"data": (np.zeros((0, 12, 12, 1)), np.zeros(0))}, "the data are empty"),
        (lambda model: {"data": tf.data.Dataset.from_tensor_slices(np.zeros((0, 12, 12, 1))).batch(2)}, "empty"),
        (lambda model: {"data": tf.data.Dataset.from_tensor_slices(np.zeros((4, 12, 12, 1)))}, "single examples"),
        (lambda model: {"data": iter([])}, "takes a tf.data.Dataset, arrays or one batch"),
        (lambda model: {"data": (np.zeros((4, 12, 12, 1)), np.zeros(3))}, "different lengths along axis 0"),
        (lambda model: {"workers": 1}, "workers=1: expected at least 2"),
        (lambda model: {"batch_size": 0}, "batch_size=0: expected at least 1"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_words(digits: Any, change: Any, told: str) -> None:
    model = _model()
    arguments = {"model": model, "data": digits, **change(model)}
    with pytest.raises(ValueError, match=told):
        paceline.explain(**arguments)


def test_an_eager_model_is_refused(digits: Any) -> None:
    with pytest.raises(ValueError, match="run_eagerly"):
        paceline.explain(_model(run_eagerly=True), digits)


def test_the_text_fits_a_terminal() -> None:
    long = "a_module_with_a_very_long_name.py:1234 in a_function_with_a_very_long_name_as_well_indeed"
    lines = tuple(RowsOfAll(f"{long}{index}", ("BatchMatMulV2", "GatherV2"), 10**9, 0.3) for index in range(3))
    told = Explanation("train_step", 4096, 8, 5, 2, 10**8, 3 * 10**9, lines, 0.9, 0.91)
    assert max(map(len, str(told).splitlines())) <= MAX_COLUMNS
    assert "5, and 2 in each turn of a loop" in str(told)
    undivided = Explanation("train_step", 4096, 8, not_divided="ValueError: " + "no such rule, " * 20)
    assert max(map(len, str(undivided).splitlines())) <= MAX_COLUMNS
    assert not undivided.is_worth_dividing
