"""The models of this benchmark, with data of their shapes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np


@dataclass(frozen=True)
class Case:
    """A model with its data.

    Args:
        build: The model, not compiled.
        loss: For `compile`.
        rows: Of a micro-batch.
        data: From a number of rows to (x, y).
        steps: Of a round.
    """

    build: Callable[[], Any]
    loss: str
    rows: int
    data: Callable[[int], tuple[Any, Any]]
    steps: int = 5


def _dense(layers: int, width: int) -> Any:
    made = [keras.layers.Dense(width, activation="relu") for _ in range(layers)]
    return keras.Sequential([keras.Input((width,)), *made])


def _vectors(rows: int, width: int) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
    return x, x / 2


def _transformer(blocks: int, width: int, tokens: int, words: int = 1000) -> Any:
    inputs = keras.Input((tokens,), dtype="int32")
    x = keras.layers.Embedding(words, width)(inputs)
    for _ in range(blocks):
        y = keras.layers.LayerNormalization()(x)
        x = keras.layers.Add()([x, keras.layers.MultiHeadAttention(4, width // 4)(y, y)])
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(4 * width, activation="gelu")(y)
        x = keras.layers.Add()([x, keras.layers.Dense(width)(y)])
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, keras.layers.Dense(10, activation="softmax")(x))


def _texts(rows: int, tokens: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 1000, (rows, tokens)).astype(np.int32), generator.integers(0, 10, rows)


def _unet(levels: int, filters: int, size: int) -> Any:
    """The first and last levels cost most of the time, and have the fewest layers and weights."""
    inputs = keras.Input((size, size, 1))

    def twice(x: Any, number: int) -> Any:
        for _ in range(2):
            x = keras.layers.Conv2D(number, 3, padding="same")(x)
            x = keras.layers.ReLU()(x)
        return x

    x, skips = inputs, []
    for level in range(levels):
        x = twice(x, filters * 2**level)
        skips.append(x)
        x = keras.layers.MaxPooling2D()(x)
    for _ in range(3):
        x = twice(x, filters * 2**levels)
    for level in reversed(range(levels)):
        x = keras.layers.UpSampling2D()(x)
        x = twice(keras.layers.Concatenate()([x, skips[level]]), filters * 2**level)
    return keras.Model(inputs, keras.layers.Conv2D(1, 1)(x))


def _images(rows: int, size: int) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(rows, size, size, 1)).astype(np.float32)
    return x, x / 2


CASES = {
    "small": Case(lambda: _dense(16, 512), "mse", 64, lambda rows: _vectors(rows, 512), steps=12),
    "dense": Case(lambda: _dense(16, 1024), "mse", 128, lambda rows: _vectors(rows, 1024)),
    "transformer": Case(
        lambda: _transformer(6, 256, 64), "sparse_categorical_crossentropy", 8, lambda rows: _texts(rows, 64)
    ),
    "unet": Case(lambda: _unet(3, 8, 48), "mse", 4, lambda rows: _images(rows, 48)),
    "long": Case(
        lambda: _transformer(6, 128, 256), "sparse_categorical_crossentropy", 4, lambda rows: _texts(rows, 256)
    ),
}
