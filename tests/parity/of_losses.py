"""Denominators: every way in which a loss divides by something that the ranks must share."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import optimizers

from parity.ingredients import BATCH, batches, cross_entropy, dense_model, layers, table, train
from parity.registry import job


def _weighted_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (*table(37), np.random.default_rng(1).random(37))


@job(worlds=())
def sample_weights() -> dict[str, Any]:
    options = {"weighted_metrics": ["accuracy"], "metrics": None}
    return train(dense_model(), optimizers.SGD(0.1), batches(_weighted_table()), compile_options=options)


@job(worlds=())
def mean_with_sample_weight() -> dict[str, Any]:
    options = {"loss": cross_entropy(reduction="mean_with_sample_weight"), "metrics": None}
    return train(dense_model(), optimizers.SGD(0.1), batches(_weighted_table()), compile_options=options)


@job(worlds=())
def summed_loss() -> dict[str, Any]:
    options = {"loss": cross_entropy(reduction="sum")}
    return train(dense_model(), optimizers.SGD(0.01), batches(table(37)), compile_options=options)


@job(worlds=())
def masked_sequences() -> dict[str, Any]:
    generator = np.random.default_rng(2)
    x = generator.integers(1, 20, (37, 6))
    x[np.arange(37) % 3 == 0, 3:] = 0
    y = generator.integers(0, 4, (37, 6))
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(20, 8, mask_zero=True),
            layers.SimpleRNN(8, return_sequences=True),
            layers.Dense(4),
        ]
    )
    return train(model, optimizers.Adam(0.01), batches((x, y)))


@job(worlds=())
def losses_of_layers() -> dict[str, Any]:
    """`add_loss` with a mean over rows and a Keras loss, and an activity regulariser, which Keras divides by rows.

    Keras 3.10 does not: there it is a sum over rows that nothing tells from a mean.
    """

    class Narrow(layers.Layer):
        distance = keras.losses.MeanSquaredError()

        def call(self, inputs: Any) -> Any:
            self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
            self.add_loss(self.distance(keras.ops.zeros_like(inputs), inputs))
            return inputs

    is_old = keras.__version__.startswith("3.10.")
    model = keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(8, activity_regularizer=None if is_old else keras.regularizers.L2(0.01)),
            Narrow(),
            layers.Dense(4),
        ]
    )
    return train(model, optimizers.SGD(0.1), batches(table(37)))


class OfRows(layers.Layer):
    """Adds losses of every shape: per row, per row and more, per feature, one mean, one sum.

    Keras adds all of a loss up. What has a value for each row was taken for a mean, and came out N times too small
    (keras.io's captcha OCR hands `ctc_batch_cost`, of shape (rows, 1), to `add_loss`).
    """

    def __init__(self, with_sum: bool, **options: Any) -> None:
        super().__init__(**options)
        self.with_sum = with_sum

    def call(self, inputs: Any) -> Any:
        ops = keras.ops
        square = ops.square(inputs)
        self.add_loss(0.011 * ops.mean(square, axis=-1))
        self.add_loss(0.013 * ops.mean(square, axis=-1, keepdims=True))
        self.add_loss(0.0017 * ops.abs(inputs))
        self.add_loss(0.05 * ops.mean(square, axis=0)[:5])
        self.add_loss(0.19 * ops.mean(square))
        if self.with_sum:
            self.add_loss(0.0023 * ops.sum(square))
        return inputs


class OwnStepOfAddedLosses(keras.Model):
    """Adds up what its layers have added, and a loss of its own."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"objective": loss}


class Distance(layers.Layer):
    """As the layer of keras.io's captcha OCR: one loss per row, of shape (rows, 1)."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(0.02 * keras.ops.mean(keras.ops.square(inputs), axis=-1, keepdims=True))
        return inputs


class OwnStepOfRows(keras.Model):
    """Takes gradients of what its layers have added, one number per row, as it is."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            self(data[0], training=True)
            loss = tf.add_n(self.losses)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"objective": tf.reduce_mean(loss)}


def _with_added_losses(kind: type[keras.Model], batch: int | None, **options: Any) -> keras.Model:
    inputs = keras.Input((8,), batch_size=batch)
    hidden = OfRows(**options)(layers.Dense(8, "tanh")(inputs))
    return kind(inputs, layers.Dense(4)(hidden))


def _of_added_losses(*runs: tuple[str, type[keras.Model], Any, Any, bool]) -> dict[str, Any]:
    """Trains a model for each name, class, data, validation, and whether eagerly."""
    weights: list[Any] = []
    history: dict[str, Any] = {}
    for name, kind, data, validation, is_eager in runs:
        model = _with_added_losses(kind, None, with_sum=name in ("uneven", "own"))
        fit = {"validation_data": validation, "epochs": 1 if is_eager else 3}
        options = {"metrics": None, "run_eagerly": is_eager}
        trained = train(model, optimizers.SGD(0.1), data, **fit, compile_options=options)
        weights += model.get_weights()
        history |= {f"{name}_{key}": values for key, values in trained["history"].items()}
    return {"weights": weights, "history": history}


@job(worlds=())
def added_losses_of_rows() -> dict[str, Any]:
    """With ranks of uneven rows, and batches of a fixed size."""
    uneven, fixed = batches(table(37)), batches(table(48), drop_remainder=True)
    return _of_added_losses(("uneven", keras.Model, uneven, uneven, False), ("fixed", keras.Model, fixed, fixed, False))


@job(worlds=())
def added_losses_of_rows_in_own_steps_and_eagerly() -> dict[str, Any]:
    uneven, few = batches(table(37)), batches(table(BATCH + 5))  # an eager step takes as long as a trace, each time
    found = _of_added_losses(("own", OwnStepOfAddedLosses, uneven, None, False), ("eager", keras.Model, few, few, True))
    weights, history = found["weights"], found["history"]
    for is_eager in (False, True):
        inputs = keras.Input((8,))
        hidden = layers.Dense(8, "tanh")(inputs)
        model = OwnStepOfRows(inputs, Distance()(layers.Dense(4)(hidden)))
        options = {"metrics": None, "loss": None, "run_eagerly": is_eager}
        data, epochs = (few, 1) if is_eager else (uneven, 3)
        trained = train(model, optimizers.SGD(0.1), data, epochs=epochs, compile_options=options)
        weights += model.get_weights()
        history |= {f"rows_{is_eager}_{key}": values for key, values in trained["history"].items()}
    return {"weights": weights, "history": history}


def _mean_square(y: Any, y_pred: Any) -> Any:
    """One number of a batch, as many write it; Keras leaves it as it is."""
    return keras.ops.mean(keras.ops.square(keras.ops.cast(y, y_pred.dtype)[:, None] - y_pred))


@job()
def loss_function_of_one_number_where_ranks_have_no_row() -> dict[str, Any]:
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4)])
    options = {"loss": _mean_square, "metrics": [_mean_square]}
    data = batches(table(BATCH + 1))
    return train(model, optimizers.SGD(0.1), data, validation_data=data, compile_options=options)


@job(worlds=())
def loss_function_of_one_number_and_a_regulariser() -> dict[str, Any]:
    return train(dense_model(), optimizers.SGD(0.1), batches(table(37)), compile_options={"loss": _mean_square})


@job(worlds=())
def loss_function_of_one_number_as_second_of_two() -> dict[str, Any]:
    inputs = keras.Input((8,))
    hidden = layers.Dense(8, "tanh", kernel_regularizer="l2")(inputs)
    model = keras.Model(inputs, [layers.Dense(4)(hidden), layers.Dense(2)(hidden)])
    x, y = table(37)
    options = {"loss": [cross_entropy(), _mean_square], "loss_weights": [1.0, 0.3], "metrics": None}
    return train(model, optimizers.Adam(0.01), batches((x, (y, y))), compile_options=options)


class Blend(keras.losses.Loss):
    """Losses within a loss: one per row, a mean, a sum of rows, and a number of its own."""

    def call(self, y: Any, y_pred: Any) -> Any:
        return (
            keras.losses.mean_absolute_error(y, y_pred)
            + keras.losses.MeanSquaredError()(y, y_pred)
            + 0.01 * keras.losses.Huber(reduction="sum")(y, y_pred)
            + 0.1 * keras.ops.mean(y_pred)
        )


def _only_one(y: Any, y_pred: Any) -> Any:
    return keras.losses.MeanSquaredError()(y, y_pred)


def _halves(y: Any, y_pred: Any) -> Any:
    return 0.5 * keras.losses.MeanSquaredError()(y, y_pred) + 0.5 * Blend()(y, y_pred)


def _beside_an_own_mean(y: Any, y_pred: Any) -> Any:
    return keras.losses.LogCosh()(y, y_pred) + 0.2 * keras.ops.mean(keras.ops.abs(y_pred - y))


def _per_row(y: Any, y_pred: Any) -> Any:
    return keras.losses.mean_squared_error(y, y_pred)


def _of_losses_within_losses(**fit: Any) -> dict[str, Any]:
    """The last batch has rows for some ranks only."""
    inputs = keras.Input((8,))
    hidden = layers.Dense(8, "tanh")(inputs)
    losses = [_only_one, _halves, _beside_an_own_mean, _per_row, Blend(), Blend(reduction="sum")]
    model = keras.Model(inputs, [layers.Dense(2)(hidden) for _ in losses])
    x, _ = table(2 * BATCH + 2)
    data = batches((x, tuple(np.stack([x[:, k], x[:, k + 1]], 1) for k in range(len(losses)))))
    options = {"loss": losses, "loss_weights": [1.0, 0.5, 0.8, 0.7, 0.6, 0.05], "metrics": None}
    options |= fit.pop("compile_options", {})
    return train(model, optimizers.SGD(0.02), data, validation_data=data, compile_options=options, **fit)


@job(worlds=())
def losses_within_losses() -> dict[str, Any]:
    return _of_losses_within_losses()


@job(worlds=())
def losses_within_losses_eagerly() -> dict[str, Any]:
    return _of_losses_within_losses(epochs=1, compile_options={"run_eagerly": True})


class OwnCall(keras.losses.Loss):
    """A loss class that does by itself what Keras's `__call__` would: nothing of Keras's scales it."""

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return keras.ops.mean((y_true - y_pred) ** 2)


@job(worlds=())
def loss_class_with_a_call_of_its_own() -> dict[str, Any]:
    x, _ = table(37)
    inputs = keras.Input((8,))
    hidden = layers.Dense(6, "tanh", kernel_regularizer="l2")(inputs)
    model = keras.Model(inputs, [layers.Dense(8)(hidden), layers.Dense(8)(hidden)])
    data = batches((x, (x**2, abs(x))))
    return train(model, optimizers.SGD(0.05), data, compile_options={"loss": [OwnCall(), "mse"], "metrics": None})
