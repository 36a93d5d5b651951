"""Models of tutorials: ``paceline run -n 2 whole_batches.py [twice]``. Only the last ones make a number of a batch.

The largest is trained on batches of a fixed size; with ``twice``, on others, too.
"""

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import paceline

layers, ops = keras.layers, keras.ops


class Recommender(keras.Model):
    """As keras.io's collaborative filtering."""

    def __init__(self, is_of_rows: bool) -> None:
        super().__init__()
        self.user, self.movie, self.bias = layers.Embedding(9, 4), layers.Embedding(9, 4), layers.Embedding(9, 1)
        self.is_of_rows = is_of_rows

    def call(self, inputs: Any) -> Any:
        user, movie = self.user(inputs[:, 0]), self.movie(inputs[:, 1])
        dot = ops.sum(user * movie, axis=-1, keepdims=True) if self.is_of_rows else ops.tensordot(user, movie, 2)
        return ops.sigmoid(dot + self.bias(inputs[:, 0]))


def usual() -> keras.Model:
    """Much of what has scalars in its graph: rates, masks, lengths, norms."""
    inputs = keras.Input((6,), dtype="int32")
    x = layers.Embedding(20, 8, mask_zero=True)(inputs)
    x = layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x) + layers.GRU(8, return_sequences=True)(x)
    x = layers.BatchNormalization()(layers.LayerNormalization()(x))
    x = layers.SpectralNormalization(layers.Conv1D(8, 3, padding="same", activity_regularizer="l2"))(x)
    x = layers.GaussianNoise(0.1)(layers.Dropout(0.2)(layers.GroupNormalization(2)(x)))
    return keras.Model(inputs, layers.Dense(1, kernel_regularizer="l2")(layers.GlobalAveragePooling1D()(x)))


x, y = np.random.default_rng(0).integers(1, 9, (64, 6)), np.random.default_rng(1).random((64, 1))
for name, make in (
    ("usual", usual),
    ("of rows", lambda: Recommender(True)),
    ("of batches", lambda: Recommender(False)),
):
    for is_fixed in (True, False) if name != "usual" or "twice" in sys.argv else (True,):
        model = make()
        model.compile("adam", "binary_crossentropy", metrics=["mae"])
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16, drop_remainder=is_fixed)
        model.fit(data, verbose=0)
        if paceline.is_chief():
            print(f"{name} fixed={is_fixed} trained", flush=True)
