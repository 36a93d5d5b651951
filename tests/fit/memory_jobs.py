"""Models that are trained one after the other, as a search over models does, and what is left of them."""

import gc
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def run_case(name: str) -> dict[str, Any]:
    """How many graphs of functions there are after each model; the gradient of a function that outlives its step."""
    return {"fits": _fits, "gradient": _gradient}[name]()


def _fits() -> dict[str, Any]:
    graphs = []
    x = np.random.default_rng(1).normal(size=(12, 4)).astype("float32")
    for _ in range(3):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "swish"), keras.layers.BatchNormalization()])
        model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
        model.fit(x, x, batch_size=6, epochs=2, verbose=0, validation_data=(x, x))
        model.fit(tf.data.Dataset.from_tensor_slices((x, x)).map(lambda x, y: (x + 1, y)).batch(5), verbose=0)
        model.predict(x, verbose=0)
        model.train_on_batch(x, x)
        del model
        gc.collect()
        graphs.append(sum(type(each).__name__ == "FuncGraph" for each in gc.get_objects()))
    return {"graphs": graphs}


@tf.function
def _curved(x: Any) -> Any:
    return tf.nn.swish(x)  # TensorFlow gives it a gradient of Python's own


def _gradient() -> dict[str, Any]:
    """A function of the script's is traced first within a step, whose model is then gone."""

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(_curved(x))

    model = Model()
    model.compile("sgd", "mse", jit_compile=False)
    x = np.ones((6, 2), "float32")
    model.fit(x, x[:, :1], batch_size=6, verbose=0)
    del model
    gc.collect()
    ones = tf.ones((6, 2))
    with tf.GradientTape() as tape:
        tape.watch(ones)
        total = tf.reduce_sum(_curved(ones))
    return {"gradient": float(tape.gradient(total, ones)[0, 0])}
