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


def _unet(filters: int, size: int) -> Any:
    """The U-Net of Noise2Noise (Lehtinen et al. 2018): narrow on the way down, wide on the way up."""

    def convolved(x: Any, number: int) -> Any:
        return keras.layers.LeakyReLU(0.1)(keras.layers.Conv2D(number, 3, padding="same")(x))

    inputs = keras.Input((size, size, 1))
    skips = [inputs]
    x = convolved(convolved(inputs, filters), filters)
    for _ in range(4):
        x = keras.layers.MaxPooling2D()(x)
        skips.append(x)
        x = convolved(x, filters)
    x = convolved(keras.layers.MaxPooling2D()(x), filters)
    while skips:
        x = keras.layers.Concatenate()([keras.layers.UpSampling2D()(x), skips.pop()])
        wide, wide_too = (2 * filters, 2 * filters) if skips else (4 * filters // 3, 2 * filters // 3)
        x = convolved(convolved(x, wide), wide_too)
    return keras.Model(inputs, keras.layers.Conv2D(1, 3, padding="same")(x))


def _images(rows: int, size: int) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(rows, size, size, 1)).astype(np.float32)
    return x, x / 2


CASES = {
    "small": Case(lambda: _dense(16, 512), "mse", 64, lambda rows: _vectors(rows, 512), steps=12),
    "dense": Case(lambda: _dense(16, 1024), "mse", 128, lambda rows: _vectors(rows, 1024)),
    "transformer": Case(
        lambda: _transformer(6, 256, 64), "sparse_categorical_crossentropy", 8, lambda rows: _texts(rows, 64)
    ),
    "unet": Case(lambda: _unet(24, 96), "mse", 4, lambda rows: _images(rows, 96)),
    "long": Case(
        lambda: _transformer(6, 128, 256), "sparse_categorical_crossentropy", 4, lambda rows: _texts(rows, 256)
    ),
}
