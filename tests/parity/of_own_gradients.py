"""What users do with gradients and weights beside Keras's step: branches, optimizers and averages of their own."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import optimizers

from parity.ingredients import BATCH, batches, layers, table
from parity.of_steps import ROWS, mean_square
from parity.registry import job


class Around(keras.Model):
    """A network, and a step around it: a function of this model and a batch, which returns logs."""

    def __init__(self, network: keras.Model, step: Callable[..., dict[str, Any]]) -> None:
        super().__init__()
        self.network, self._step = network, step
        self.built = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.network(inputs, training=training)

    def train_step(self, data: Any) -> dict[str, Any]:
        return self._step(self, *data)


def _two_layers() -> keras.Model:
    return keras.Sequential([keras.Input((8,)), layers.Dense(6, "tanh"), layers.Dense(8)])


def _fitted(model: keras.Model, x: Any = None, optimizer: Any = None, **compile_options: Any) -> dict[str, Any]:
    rows, _ = table(ROWS)
    model.compile(optimizer=optimizer or optimizers.SGD(0.05), **compile_options)
    history = model.fit(batches((rows if x is None else x, tf.sin(rows))), epochs=2, verbose=0).history
    return {"model": model, "history": history}


@job(worlds=())
def own_step_that_updates_in_a_branch() -> dict[str, Any]:
    """A tensor of the step is a placeholder in a branch of it, which is no data."""

    def step(model: Any, x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = mean_square(y, model(x, training=True))
        variables = model.network.trainable_variables
        gradients = tape.gradient(loss, variables)
        model.optimizer.build(variables)
        norm = tf.linalg.global_norm(gradients)
        tf.cond(
            norm < 100.0,
            lambda: model.optimizer.apply([0.5 * one for one in gradients], variables),
            lambda: None,
        )
        return {"loss": loss, "norm": norm}

    return _fitted(Around(_two_layers(), step))


@job()
def own_step_that_makes_sparse_gradients_dense() -> dict[str, Any]:
    """The rows that a sparse gradient touches are those of all ranks, too."""

    def step(model: Any, x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = mean_square(y, model(x))
        variables = model.network.trainable_variables
        gradients = [0.5 * tf.convert_to_tensor(one) for one in tape.gradient(loss, variables)]
        model.optimizer.apply(gradients, variables)
        return {"loss": loss}

    x, _ = table(ROWS)
    network = keras.Sequential(
        [keras.Input((8,), dtype="int64"), layers.Embedding(20, 4), layers.Flatten(), layers.Dense(8)]
    )
    return _fitted(Around(network, step), abs(5 * x).astype("int64") % 20)


@job(worlds=())
def own_step_without_a_tape() -> dict[str, Any]:
    """A Keras loss and a mean, and a norm of their gradients that is the global batch's."""

    def step(model: Any, x: Any, y: Any) -> dict[str, Any]:
        y_pred = model(x, training=True)
        loss = mean_square(y, y_pred) + tf.reduce_mean(tf.abs(y_pred))
        variables = model.network.trainable_variables
        values = [variable.value for variable in variables]
        gradients = tf.gradients(loss, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        model.optimizer.apply(tf.clip_by_global_norm(gradients, 0.1)[0], variables)
        return {"loss": loss}

    return _fitted(Around(_two_layers(), step))


@job(worlds=())
def own_step_that_sums_over_normalized_rows() -> dict[str, Any]:
    """BatchNormalization has averaged over rows, and a kernel's columns are normalised: a sum of losses stays one."""

    def step(model: Any, x: Any, y: Any) -> dict[str, Any]:
        hidden, *_, out = model.network.layers
        with tf.GradientTape() as tape:
            model(x, training=True)
            features = model.features(x, training=True)
            y_pred = features @ tf.nn.l2_normalize(out.kernel.value, axis=0) + out.bias
            loss = tf.reduce_sum(tf.reduce_mean((y - y_pred) ** 2, axis=1)) * (1.0 / BATCH)
        variables = [*hidden.trainable_variables, *out.trainable_variables]
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}

    normalization = layers.BatchNormalization(synchronized=True)
    network = keras.Sequential([keras.Input((8,)), layers.Dense(6), normalization, layers.ReLU(), layers.Dense(8)])
    model = Around(network, step)
    model.features = keras.Sequential(network.layers[:-1])
    return _fitted(model)


class ClippingSGD(optimizers.SGD):
    """Clips by the norm of all gradients before Keras's own optimizer gets them."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        return super().apply(tf.clip_by_global_norm(grads, 0.1)[0], trainable_variables)


@job(worlds=())
def an_optimizer_that_clips_in_its_own_apply() -> dict[str, Any]:
    graph = _fitted(_two_layers(), optimizer=ClippingSGD(0.1), loss="mse")
    eager = _fitted(_two_layers(), optimizer=ClippingSGD(0.1), loss="mse", run_eagerly=True)
    return {
        "weights": [*graph["model"].get_weights(), *eager["model"].get_weights()],
        "history": graph["history"] | {f"{name}_eagerly": values for name, values in eager["history"].items()},
    }


@job(worlds=())
def own_step_that_averages_moving_statistics() -> dict[str, Any]:
    """The average of weights that diffusion models keep: after the update, moving means are those of all ranks."""

    def step(model: Any, x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = mean_square(y, model(x))
        variables = model.network.trainable_variables
        model.normalization(x, training=True)
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        model.average.assign(0.9 * model.average + 0.1 * model.normalization.moving_mean)
        return {"loss": loss}

    model = Around(_two_layers(), step)
    model.normalization = layers.BatchNormalization(momentum=0.5)
    model.normalization.build((None, 8))
    model.average = model.add_weight(shape=(8,), initializer="zeros", trainable=False)
    result = _fitted(model)
    weights = [*model.network.get_weights(), model.normalization.moving_mean.numpy(), model.average.numpy()]
    return {"weights": weights, "history": result["history"]}


@job()
def own_eager_step_that_logs_pythons_numbers() -> dict[str, Any]:
    def step(model: Any, x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = mean_square(y, model(x)) if model.has_keras_loss else tf.reduce_mean((y - model(x)) ** 2)
        variables = model.network.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        model.tracker.update_state(loss)
        return {
            "tracked": float(model.tracker.result()),
            "last": loss.numpy(),  # of `float(loss)`, one worker makes float32
            "rate": 0.1,
            "steps": int(model.optimizer.iterations),
        }

    weights, history = [], {}
    for has_keras_loss in (True, False):
        model = Around(_two_layers(), step)
        model.tracker, model.has_keras_loss = keras.metrics.Mean(name="tracked"), has_keras_loss
        for name, values in _fitted(model, run_eagerly=True)["history"].items():
            history[f"{name}_{has_keras_loss}"] = values
        weights += model.get_weights()
    return {"weights": weights, "history": history}
