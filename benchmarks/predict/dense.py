"""A small dense model on rows in memory, in plain Keras: ``dense.py [EPOCHS]``."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

NUM_ROWS, BATCH = 16_384, 256

chance = np.random.default_rng(1)
rows = chance.random((NUM_ROWS, 256), np.float32)
labels = chance.integers(0, 10, NUM_ROWS)
model = keras.Sequential(
    [
        keras.Input((256,)),
        keras.layers.Dense(512, activation="relu"),
        keras.layers.Dense(512, activation="relu"),
        keras.layers.Dense(10),
    ]
)
model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(rows, labels, batch_size=BATCH, epochs=int(sys.argv[1]) if len(sys.argv) > 1 else 3, verbose=2)
