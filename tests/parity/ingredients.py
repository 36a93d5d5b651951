"""Small models, data and one call of `fit`, shared by the jobs."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers
BATCH = 17
"""Divides among no number of workers: a mean of ranks' means is wrong in every batch, not in the last one only."""
_DIGITS = Path(__file__).parents[2] / "examples" / "data" / "mnist_10k.npz"


def cross_entropy(**options: Any) -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def dense_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(16, "relu", kernel_regularizer=keras.regularizers.L2(1e-2)),
            layers.Dense(4),
        ]
    )


def convolutional_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, 8)), generator.integers(0, 4, rows)


def digits(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Real digits, cut to every other pixel of their middle."""
    with np.load(_DIGITS) as archive:
        images = archive["x_train"][:rows, 2:26:2, 2:26:2, None]
        return (images / 255.0).astype(keras.config.floatx()), archive["y_train"][:rows].astype("int64")


def batches(arrays: Any, **options: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH, **options)


def train(model: keras.Model, optimizer: Any, x: Any, y: Any = None, **fit: Any) -> dict[str, Any]:
    """Three epochs of `fit`; ``compile_options`` go to `compile`, everything else to `fit`."""
    compile_options = fit.pop("compile_options", {})
    model.compile(optimizer=optimizer, **{"loss": cross_entropy(), "metrics": ["accuracy"], **compile_options})
    history = model.fit(x, y, **{"epochs": 3, "verbose": 0, **fit}).history
    return {"model": model, "history": history}
