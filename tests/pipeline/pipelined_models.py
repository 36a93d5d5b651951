"""Models and data for tests of pipelines, and what plain Keras makes of them, to compare with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers

ROWS, BATCH_ROWS = 15, 7
"""No micro-batch count of the tests divides the batch; the last batch has one row, so one of two replicas has none."""

_random = np.random.default_rng(0)
NUMBERS = _random.normal(size=(ROWS, 5))
IMAGES = _random.normal(size=(ROWS, 6, 6, 2))
WORDS = _random.integers(0, 9, (ROWS, 6))
TARGETS = _random.normal(size=(ROWS, 2))
SEQUENCES = _random.normal(size=(ROWS, 6, 1))
WEIGHTS = _random.uniform(0.1, 2.0, ROWS)


@dataclass(frozen=True)
class Job:
    """A model with what it is trained on; everything is made anew by `build`."""

    build: Callable[[], Any]
    x: Any
    y: Any
    loss: Any = "mse"
    metrics: Any = field(default_factory=lambda: ["mae"])
    optimizer: Callable[[], Any] = field(default=lambda: keras.optimizers.Adam(0.01))
    sample_weight: Any = None
    limit: float = 1e-9
    """Of relative differences."""


def _skips() -> Any:
    x = keras.Input((5,))
    first = layers.Dense(6, activation="relu", kernel_regularizer="l2", name="first")(x)
    second = layers.Dropout(0.3, name="second")(first)
    third = layers.Dense(6, name="third")(second)
    fourth = layers.Dense(6, activation="tanh", name="fourth")(third)
    return keras.Model(x, layers.Dense(2, name="last")(layers.Concatenate(name="joined")([x, first, third, fourth])))


def _images() -> Any:
    x = keras.Input((6, 6, 2))
    first = layers.Conv2D(3, 3, padding="same", activation="relu")(x)
    second = layers.LayerNormalization()(layers.Conv2D(3, 3, padding="same")(first))
    joined = layers.Add()([first, second])
    return keras.Model(x, layers.Dense(2)(layers.Flatten()(layers.MaxPooling2D()(joined))))


def _masked_sequences() -> Any:
    x = keras.Input((6,), dtype="int32")
    embedded = layers.Embedding(9, 4, mask_zero=True)(x)
    return keras.Model(x, layers.Dense(1)(layers.LSTM(5, return_sequences=True, dropout=0.2)(embedded)))


def _attention() -> Any:
    x = keras.Input((6,), dtype="int32")
    hidden = layers.Embedding(9, 4)(x)
    seen = layers.MultiHeadAttention(2, 3, dropout=0.2)(hidden, hidden)
    hidden = layers.LayerNormalization()(layers.Add()([hidden, seen]))
    return keras.Model(x, layers.Dense(2)(layers.GlobalAveragePooling1D()(hidden)))


def _several_inputs_and_outputs() -> Any:
    numbers, words = keras.Input((5,), name="numbers"), keras.Input((6,), dtype="int32", name="words")
    early = layers.Dense(2, name="early")(numbers)
    embedded = layers.Flatten()(layers.Embedding(9, 2)(words))
    joined = layers.GaussianNoise(0.1)(layers.Concatenate()([early, embedded]))
    late = layers.Dense(2, activity_regularizer="l2", name="late")(joined)
    return keras.Model([numbers, words], {"early": early, "late": late})


class Codes(layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Keeps sums over rows of what it is handed, how many rows there were, and the last rows."""

    def build(self, shape: Any) -> None:
        self.sums = self.add_weight(shape=(shape[-1],), trainable=False, initializer="zeros")
        self.count = self.add_weight(shape=(), trainable=False, initializer="zeros", dtype="int64")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.sums.assign(0.9 * self.sums + 0.1 * keras.ops.sum(x, axis=0))
            self.count.assign_add(keras.ops.cast(keras.ops.shape(x)[0], "int64"))
        return x


class Drawn(layers.Layer):  # type: ignore[misc]
    """Adds numbers of TensorFlow's own generator, which has a state in its kernel."""

    def call(self, x: Any, training: bool = False) -> Any:
        return x + tf.random.normal(tf.shape(x), 0.0, 0.1, x.dtype, seed=3) if training else x


class Positions(layers.Layer):  # type: ignore[misc]
    """Looks up the same rows for all rows of the batch."""

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=(9, shape[-1]), name="table")

    def call(self, x: Any) -> Any:
        return x + keras.ops.take(self.table, keras.ops.arange(x.shape[1]), axis=0)


class Normed(layers.Dense):  # type: ignore[misc]
    """Divides its weights by their norms, and takes their means away: gradients go through what is made of weights."""

    def call(self, x: Any) -> Any:
        kernel = self.kernel - keras.ops.mean(self.kernel, axis=0)
        return keras.ops.matmul(x, kernel / keras.ops.sqrt(keras.ops.sum(kernel * kernel, axis=0))) + self.bias


class OneRow(layers.Layer):  # type: ignore[misc]
    """Makes one row of weights, whatever the batch."""

    def build(self, shape: Any) -> None:
        self.row = self.add_weight(shape=(1, 4), name="row")

    def call(self, x: Any) -> Any:
        del x
        return self.row + 0.0


def _of_weights() -> Any:
    x = keras.Input((5,))
    row = OneRow()(x)
    hidden = layers.Add()([Normed(4)(layers.Dense(4, activation="tanh")(x)), row])
    return keras.Model(x, Normed(2)(layers.Dense(4)(hidden)))


def _adapted() -> Any:
    x = keras.Input((5,))
    adapted = layers.Dense(4, activation="tanh")
    model = keras.Model(x, layers.Dense(2)(adapted(layers.Dense(6)(x))))
    adapted.enable_lora(2)
    return model


def _one_number(y: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.square(y - y_pred)) + 0.1 * keras.ops.mean(y_pred)


def _weighed_by_targets(y: Any, y_pred: Any) -> Any:
    """Divided by what follows from the data of all rows."""
    weights = keras.ops.abs(y)
    return keras.ops.sum(weights * keras.ops.square(y - y_pred)) / keras.ops.sum(weights)


def _keeps_and_draws() -> Any:
    x = keras.Input((5,))
    hidden = Drawn()(layers.Dense(6, activation="tanh")(Drawn()(x)))
    return keras.Model(x, layers.Dense(2)(Codes()(layers.Dense(4)(hidden))))


def _positions() -> Any:
    x = keras.Input((6,), dtype="int32")
    hidden = layers.Dense(4, activation="tanh")(layers.Embedding(9, 4)(x))
    return keras.Model(x, layers.Dense(2)(layers.Flatten()(Positions()(hidden))))


JOBS = {
    "keeps and draws": Job(_keeps_and_draws, NUMBERS, TARGETS, loss=_one_number, metrics=[_one_number, "mae"]),
    "gradients through weights": Job(_of_weights, NUMBERS, TARGETS),
    "low rank": Job(_adapted, NUMBERS, TARGETS, limit=1e-6),  # Keras adds these weights in single precision
    "positions": Job(_positions, WORDS, TARGETS, loss=_weighed_by_targets, metrics=None),
    "skips": Job(_skips, NUMBERS, TARGETS, optimizer=lambda: keras.optimizers.Adam(0.02, global_clipnorm=0.2)),
    "images": Job(
        _images, IMAGES, TARGETS, optimizer=lambda: keras.optimizers.SGD(0.05, use_ema=True, ema_overwrite_frequency=2)
    ),
    "masked sequences": Job(_masked_sequences, WORDS, SEQUENCES),
    "attention": Job(
        _attention,
        WORDS,
        TARGETS,
        optimizer=lambda: keras.optimizers.Adagrad(0.05, gradient_accumulation_steps=2, clipnorm=0.5),
        sample_weight=WEIGHTS,
    ),
    "several inputs and outputs": Job(
        _several_inputs_and_outputs,
        {"numbers": NUMBERS, "words": WORDS},
        {"early": TARGETS, "late": 2 * TARGETS},
        loss={"early": "mse", "late": "mae"},
        metrics={"early": ["mae"], "late": ["mse"]},
    ),
}


def trained(job: Job, scope: Any, steps_per_execution: int = 1) -> tuple[Any, dict[str, Any]]:
    """Trains a model that is made in `scope`: the model, and all that is to be compared."""
    keras.utils.set_random_seed(5)
    with scope:
        model = job.build()
        model.compile(job.optimizer(), job.loss, metrics=job.metrics, steps_per_execution=steps_per_execution)
    common = {"batch_size": BATCH_ROWS, "verbose": 0}
    history = model.fit(
        job.x,
        job.y,
        epochs=2,
        shuffle=False,
        sample_weight=job.sample_weight,
        validation_data=(job.x, job.y),
        validation_batch_size=9,
        **common,
    )
    return model, {
        "history": {name: [float(value) for value in values] for name, values in history.history.items()},
        "predictions": model.predict(job.x, **common),
        "evaluated": model.evaluate(job.x, job.y, **common),
        "kept": [
            variable.numpy() for layer in model.layers if isinstance(layer, Codes) for variable in layer.variables
        ],
    }


def check_equal(found: dict[str, Any], expected: dict[str, Any], limit: float = 1e-9) -> None:
    """To a relative limit."""
    assert found["history"].keys() == expected["history"].keys()
    leaves, others = keras.tree.flatten(found), keras.tree.flatten(expected)
    for one, other in zip(leaves, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=limit, atol=limit / 1000)
