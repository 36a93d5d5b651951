"""One small float64 training in plain Keras, the same wherever it runs; the scripts of this folder share it."""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf


class LastStep(keras.callbacks.Callback):
    """Remembers when the last step ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_at = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended_at = time.monotonic()


def one_batch() -> tuple[np.ndarray, np.ndarray]:
    return np.ones((5, 8)), np.zeros(5, "int64")


def dataset() -> tf.data.Dataset:
    """37 rows, whose last batch does not divide, shuffled by TensorFlow's seed, anew in each epoch."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(37, 8)), generator.integers(0, 4, 37)
    return tf.data.Dataset.from_tensor_slices(rows).shuffle(37).map(lambda x, y: (2 * x, y), tf.data.AUTOTUNE).batch(16)


def model_and_compile() -> keras.Model:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(4)])
    model.compile(
        keras.optimizers.Adam(0.01, clipnorm=0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def train(scope: Any = None, seed: int = 5) -> dict[str, Any]:
    """Two epochs; the model is made in `scope`."""
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(seed)
    last_step = LastStep()
    data = dataset()
    with scope or contextlib.nullcontext():
        model = model_and_compile()
    history = model.fit(data, epochs=2, verbose=0, callbacks=[last_step]).history
    return {
        "weights": flat(model),
        "loss": history["loss"],
        "accuracy": history["accuracy"],
        "seconds_after_last_step": time.monotonic() - last_step.ended_at,
    }


def flat(model: keras.Model) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in model.get_weights()])


def save(directory: str, name: str, rank: int, values: dict[str, Any]) -> None:
    np.savez(Path(directory) / f"{name}.rank{rank}.npz", **values)
