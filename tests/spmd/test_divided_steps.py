"""Keras's own step, divided by rules: the ranks have one worker's numbers, and send few messages."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from tests.spmd.rank_threads import NotedMessages, Step, assert_as_one_worker
from tests.strategy.thread_worlds import on_each_rank

from paceline.spmd.partition import Partitioner

pytestmark = pytest.mark.usefixtures("in_double_precision")

_RNG = np.random.default_rng(0)
ROWS = 7
FEATURES = _RNG.standard_normal((ROWS, 6))
LABELS = _RNG.integers(0, 3, ROWS)
IMAGES = _RNG.random((ROWS, 8, 8, 3))
SERIES = _RNG.standard_normal((ROWS, 5, 4))
WORDS = _RNG.integers(0, 20, (ROWS, 6))
TARGETS = _RNG.random((ROWS, 1))
POINTS = _RNG.random((ROWS, 3))
YES_OR_NO = _RNG.integers(0, 2, (ROWS, 1)).astype("float64")

DIVISIONS = (pytest.param((4, 3), marks=pytest.mark.proof), (2, 5, 0))


def _step(
    make: Callable[[], keras.Model],
    loss: Callable[[], Any] = lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer: Callable[[], Any] = lambda: keras.optimizers.Adam(0.01),
    metrics: Sequence[Callable[[], Any]] = (),
) -> Callable[[], Step]:
    """Makes the step with which `fit` trains the model."""

    def build() -> Step:
        keras.utils.set_random_seed(3)
        model = make()
        model.compile(optimizer(), loss(), metrics=[metric() for metric in metrics])
        model.optimizer.build(model.trainable_variables)
        return Step(lambda *batch: model.train_step(batch), lambda: model.variables)

    return build


def _sequential(*parts: Callable[[], Any], shape: tuple[int, ...] = (6,)) -> Callable[[], keras.Model]:
    return lambda: keras.Sequential([keras.Input(shape), *(part() for part in parts)])


def _dense(units: int = 3, activation: str | None = None) -> Callable[[], Any]:
    return lambda: layers.Dense(units, activation=activation)


def _layer(function: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: layers.Lambda(function)


def _perceptron(units: int = 3, activation: str | None = None) -> Callable[[], keras.Model]:
    return _sequential(_dense(5, "relu"), _dense(units, activation))


class _SumOfSquares(keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return ops.sum(ops.square(y_true - y_pred))


def _pairs_of_rows(y_true: Any, y_pred: Any) -> Any:
    """A contrastive loss: each row against all others."""
    scores = ops.matmul(y_pred, ops.transpose(y_true))
    return ops.mean(ops.logsumexp(scores, axis=1) - ops.diagonal(scores))


class _AddsLosses(layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(ops.sum(ops.square(inputs)) * 0.01)
        self.add_loss(ops.mean(ops.abs(inputs), axis=-1))
        return inputs


class _Noise(layers.Layer):
    def call(self, inputs: Any) -> Any:
        noise = tf.random.normal(tf.shape(inputs), dtype=inputs.dtype)
        return inputs + noise + tf.random.uniform([6], dtype=inputs.dtype, seed=3)


class _Codebook(layers.Layer):
    def build(self, shape: Any) -> None:
        self.codes = self.add_weight(shape=(shape[-1], 4), initializer="random_normal")
        self.counts = self.add_weight(shape=(4,), initializer="ones", trainable=False)

    def call(self, inputs: Any) -> Any:
        distances = ops.sum(ops.square(self.codes), 0) - 2 * ops.matmul(inputs, self.codes)
        chosen = ops.one_hot(ops.argmin(distances, 1), 4, dtype=inputs.dtype)
        self.counts.assign(0.9 * self.counts + 0.1 * ops.sum(chosen, 0))
        code = ops.matmul(chosen, ops.transpose(self.codes))
        self.add_loss(ops.mean(ops.square(code - ops.stop_gradient(inputs))))
        return inputs + ops.stop_gradient(code - inputs)


class GradientPenalty(keras.Model):
    def train_step(self, data: Any) -> dict[str, Any]:
        inputs, targets = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                predictions = self(inputs, training=True)
            gradient = inner.gradient(predictions, inputs)
            penalty = tf.reduce_mean(tf.square(tf.norm(gradient, axis=1) - 1))
            loss = self.compute_loss(inputs, targets, predictions) + penalty
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def _penalized() -> keras.Model:
    inputs = keras.Input((6,))
    return GradientPenalty(inputs, layers.Dense(1)(layers.Dense(5, activation="tanh")(inputs)))


def _attention() -> keras.Model:
    inputs = keras.Input((5, 4))
    hidden = layers.MultiHeadAttention(2, 3, dropout=0.1)(inputs, inputs)
    hidden = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(inputs + hidden))
    return keras.Model(inputs, layers.Dense(3)(hidden))


def _clipped() -> Any:
    return keras.optimizers.Adam(0.01, global_clipnorm=1.0)


ONE_MESSAGE = {
    "perceptron": (
        FEATURES,
        LABELS,
        _step(
            _sequential(_dense(5, "relu"), lambda: layers.Dropout(0.3), _dense()),
            optimizer=_clipped,
            metrics=[lambda: "accuracy"],
        ),
    ),
    "attention": (SERIES, LABELS, _step(_attention, optimizer=lambda: keras.optimizers.AdamW(0.01))),
    "lstm": (SERIES, LABELS, _step(_sequential(lambda: layers.LSTM(6), _dense(), shape=(5, 4)))),
    "masked recurrent layers": (
        WORDS,
        LABELS,
        _step(
            _sequential(
                lambda: layers.Embedding(20, 4, mask_zero=True),
                lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
                lambda: layers.GRU(4),
                _dense(),
            )
        ),
    ),
    "loss of one number": (FEATURES, TARGETS, _step(_perceptron(1), _SumOfSquares)),
    "add_loss": (FEATURES, LABELS, _step(_sequential(_AddsLosses, _dense()))),
    "tf.random": (FEATURES, LABELS, _step(_sequential(_Noise, _dense()))),
    "codebook": (FEATURES, LABELS, _step(_sequential(_Codebook, _dense()))),
    "crossed features": (
        FEATURES,
        LABELS,
        _step(_sequential(_dense(4), _layer(lambda x: ops.reshape(x[:, :, None] * x[:, None, :], (-1, 16))), _dense())),
    ),
    "repeated rows": (
        FEATURES,
        LABELS,
        _step(
            _sequential(
                lambda: layers.RepeatVector(3),
                lambda: layers.SimpleRNN(4, return_sequences=True),
                lambda: layers.TimeDistributed(layers.Dense(3)),
                lambda: layers.GlobalMaxPooling1D(),
            )
        ),
    ),
    "enlarged images": (
        IMAGES,
        LABELS,
        _step(
            _sequential(
                lambda: layers.Conv2D(3, 3),
                lambda: layers.UpSampling2D(),
                lambda: layers.Conv2D(2, 3),
                lambda: layers.Flatten(),
                _dense(),
                shape=(8, 8, 3),
            )
        ),
    ),
    "spectral normalization": (
        FEATURES,
        LABELS,
        _step(_sequential(lambda: layers.SpectralNormalization(layers.Dense(4)), _dense())),
    ),
}
"""Models whose steps send their gradients, metrics and losses at once, and nothing else."""

MORE_MESSAGES = {
    "convolutions": (
        IMAGES,
        LABELS,
        _step(
            _sequential(
                lambda: layers.SeparableConv2D(4, 3),
                lambda: layers.BatchNormalization(),
                lambda: layers.MaxPooling2D(),
                lambda: layers.Conv2DTranspose(3, 2, strides=2),
                lambda: layers.UpSampling2D(),
                lambda: layers.Flatten(),
                _dense(),
                shape=(8, 8, 3),
            )
        ),
    ),
    "pairs of rows": (FEATURES, POINTS, _step(_perceptron(), lambda: _pairs_of_rows)),
    "metrics": (
        FEATURES,
        YES_OR_NO,
        _step(
            _perceptron(1, "sigmoid"),
            lambda: "binary_crossentropy",
            metrics=[keras.metrics.AUC, keras.metrics.Precision, keras.metrics.F1Score],
        ),
    ),
    "gradient penalty": (FEATURES, TARGETS, _step(_penalized, lambda: "mse")),
    "map_fn": (
        FEATURES,
        LABELS,
        _step(_sequential(_layer(lambda x: tf.map_fn(lambda row: row * tf.reduce_sum(row), x)), _dense())),
    ),
    "cond on all rows": (
        FEATURES,
        LABELS,
        _step(_sequential(_layer(lambda x: tf.cond(tf.reduce_mean(x) > 0, lambda: x * 2, lambda: x - 1)), _dense())),
    ),
    "loop with a mean of all rows": (
        FEATURES,
        LABELS,
        _step(
            _sequential(
                _layer(
                    lambda x: tf.while_loop(
                        lambda turn, _: turn < 3,
                        lambda turn, value: (turn + 1, value * 1.1 + tf.reduce_mean(value, 0)),
                        [0, x],
                    )[1]
                ),
                _dense(),
            )
        ),
    ),
    "two views of a batch": (
        FEATURES,
        LABELS,
        _step(
            _sequential(_layer(lambda x: tf.reduce_mean(tf.reshape(tf.concat([x, x * 2], 0), [2, -1, 6]), 0)), _dense())
        ),
    ),
    "named batch size": (
        FEATURES,
        LABELS,
        _step(_sequential(_layer(lambda x: tf.reshape(x, [ROWS, 6]) * tf.ones([ROWS, 1], x.dtype)), _dense())),
    ),
    "shuffled rows": (
        FEATURES,
        LABELS,
        _step(
            _sequential(
                _layer(lambda x: tf.random.shuffle(x, seed=1) + tf.gather(x, tf.range(tf.shape(x)[0])[::-1])), _dense()
            )
        ),
    ),
}
"""Models whose steps need all rows somewhere."""


def _each(cases: dict[str, Any], proof: set[str]) -> list[Any]:
    """The names, of which those of `proof` are left to `make proof`."""
    return [pytest.param(name, marks=pytest.mark.proof) if name in proof else name for name in cases]


LONG = {"masked recurrent layers", "repeated rows", "enlarged images", "spectral normalization", "shuffled rows"}


@pytest.mark.parametrize("counts", DIVISIONS)
@pytest.mark.parametrize("name", _each(ONE_MESSAGE, LONG))
def test_a_step_with_one_message(name: str, counts: tuple[int, ...]) -> None:
    inputs, targets, make = ONE_MESSAGE[name]
    sent = assert_as_one_worker(make, [inputs, targets], counts)
    assert sent == ["sum"]


@pytest.mark.parametrize("counts", DIVISIONS)
@pytest.mark.parametrize("name", _each(MORE_MESSAGES, LONG))
def test_a_step_that_needs_all_rows(name: str, counts: tuple[int, ...]) -> None:
    inputs, targets, make = MORE_MESSAGES[name]
    # Where a normalization divides by a deviation of nearly nothing, rounding grows.
    assert_as_one_worker(make, [inputs, targets], counts, limit=1e-8 if name == "convolutions" else 1e-9)


@pytest.mark.parametrize("name", _each(ONE_MESSAGE, ONE_MESSAGE.keys() - {"perceptron", "lstm"}))
def test_a_step_that_is_traced_for_one_length_of_batch(name: str) -> None:
    """As a loop of a user's traces it: TensorFlow has computed the shapes, and knows nothing of rows."""
    inputs, targets, make = ONE_MESSAGE[name]
    sent = assert_as_one_worker(make, [inputs, targets], (4, 3), for_one_length=True)
    assert sent == ["sum"]


@pytest.mark.parametrize("name", _each(MORE_MESSAGES, MORE_MESSAGES.keys() - {"pairs of rows", "map_fn"}))
def test_a_step_for_one_length_of_batch_that_needs_all_rows(name: str) -> None:
    inputs, targets, make = MORE_MESSAGES[name]
    limit = 1e-8 if name == "convolutions" else 1e-9
    assert_as_one_worker(make, [inputs, targets], (4, 3), limit=limit, for_one_length=True)


def test_recurrent_layers_on_sequences_of_any_length_send_one_message() -> None:
    """The length of a gradient's sequences is another unknown number than that of the words."""
    make = _step(_sequential(lambda: layers.Embedding(20, 4), lambda: layers.LSTM(4), _dense(), shape=(None,)))
    [messages] = on_each_rank(1, NotedMessages)
    specs = tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([None], tf.int64)
    whole = tf.function(make().function, autograph=False).get_concrete_function(*specs)
    Partitioner(messages).divided(whole, [True, True]).get_concrete_function()
    assert messages.sent == ["sum"]


def _pooled() -> Step:
    keras.utils.set_random_seed(3)
    filters = tf.Variable(tf.random.stateless_normal([3, 3, 3, 4], [1, 2], dtype=tf.float32))

    def step(images: Any) -> Any:
        with tf.GradientTape() as tape:
            pooled = tf.nn.max_pool2d(tf.nn.conv2d(images, filters, 1, "VALID"), 2, 2, "VALID")
            loss = tf.reduce_sum(pooled**2)
        return [tape.gradient(loss, filters), pooled]

    return Step(step)


def _convolved() -> Step:
    keras.utils.set_random_seed(3)
    filters = tf.Variable(tf.random.stateless_normal([3, 3, 3, 4], [1, 2], dtype=tf.float32))
    bias = tf.Variable(tf.ones([4], tf.float32))

    def step(images: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.bias_add(tf.nn.conv2d(images, filters, 1, "VALID"), bias) ** 2)
        return tape.gradient(loss, [filters, bias])

    return Step(step)


def _merged(activation: Callable[[Any], Any]) -> Callable[[], Step]:
    """Operations that TensorFlow merges with the convolution in front of them."""

    def make() -> Step:
        keras.utils.set_random_seed(3)
        filters = [tf.Variable(tf.random.stateless_normal([3, 3, 3, 3], [1, n], dtype=tf.float32)) for n in range(2)]
        bias = tf.Variable(tf.ones([3], tf.float32))

        def convolved(images: Any, number: int) -> Any:
            return tf.nn.bias_add(tf.nn.conv2d(images, filters[number], 1, "SAME"), bias)

        def step(images: Any) -> Any:
            with tf.GradientTape() as tape:
                one = activation(convolved(images, 0))
                two = activation(convolved(one, 1) + one)
                loss = tf.reduce_mean(two**2)
            return [loss, two, *tape.gradient(loss, [*filters, bias])]

        return Step(step)

    return make


@pytest.mark.parametrize(
    "make",
    [
        _convolved,
        _pooled,
        *(
            pytest.param(_merged(one), id=one.__name__)
            for one in (tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.leaky_relu, tf.nn.sigmoid, tf.nn.tanh)
        ),
    ],
)
def test_images_on_a_rank_without_rows(make: Callable[[], Step]) -> None:
    """oneDNN merges two gradients of a convolution, and then gives one only; that of a pool ends the process.

    On processors with AVX512, where TensorFlow uses oneDNN by default.
    """
    assert_as_one_worker(make, [IMAGES.astype("float32")], (2, 5, 0), limit=1e-5)


@pytest.mark.parametrize("activation", [tf.nn.relu, tf.nn.elu, tf.nn.sigmoid, tf.nn.silu])
def test_operations_are_merged_with_a_convolution_as_in_one_workers_step(
    activation: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Nothing for ranks without rows stands between them: apart, convolution, bias and relu take a fifth longer."""
    images = tf.constant(IMAGES, tf.float32)
    [messages] = on_each_rank(1, NotedMessages)
    step = _merged(activation)().function
    whole = tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec([None, 8, 8, 3], tf.float32))
    divided = Partitioner(messages).divided(whole, [True]).get_concrete_function()
    kernels = []
    num_rows = tf.constant(ROWS, tf.int64)
    for name, function, given in (("whole", whole, [images]), ("divided", divided, [num_rows, num_rows * 0, images])):
        function(*given)
        with tf.profiler.experimental.Profile(str(tmp_path / name)):
            function(*given)
        [profile] = (tmp_path / name).rglob("*.xplane.pb")
        kernels.append(set(re.findall(rb"_\w*Fused\w+", profile.read_bytes())))
    assert kernels[0]
    assert kernels[0] == kernels[1]


def _differences() -> Step:
    def step(rows: Any) -> Any:
        whole = tf.cast(rows, tf.uint32)
        return tf.cast(tf.reduce_sum(whole[:, :2]) - tf.reduce_sum(whole[:, 2:]), tf.float32)

    return Step(step)


def test_sums_of_integers_that_wrap_around_on_one_rank() -> None:
    rows = np.array([[9, 9, 1, 0], [0, 0, 5, 6], [9, 1, 1, 1], [1, 1, 4, 7], [8, 9, 0, 0]], np.uint8)
    assert_as_one_worker(_differences, [rows], (2, 3))
