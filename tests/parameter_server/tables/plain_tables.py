"""Plain Keras, without Paceline, on a file of a model that was trained on parameter servers."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


def run_case(name: str, *arguments: str) -> Any:
    return globals()[name](*arguments)


def continued(path: str) -> Any:
    """What is in the file, and what three further steps make of it."""
    keras.config.set_floatx("float64")
    model = keras.models.load_model(path)
    loaded = _numbers(model)
    ids = tf.reshape(tf.range(8, dtype=tf.int64), [2, 4])
    served = tf.saved_model.load(f"{path}.exported")
    np.testing.assert_allclose(served.serve(ids), model(ids), atol=1e-12)
    random = np.random.default_rng(1)
    for _ in range(3):
        ids = random.integers(0, model.layers[0].input_dim - 2, (5, 4))
        labels = random.normal(size=(5, 1))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(ids, training=True) - labels) ** 2)
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
    return [weight.path for weight in model.weights], loaded, _numbers(model)


def _numbers(model: Any) -> Any:
    return [weight.tolist() for weight in (*model.get_weights(), *(v.numpy() for v in model.optimizer.variables))]
