"""The MNIST CNN with Adam (33 MB of state) under Paceline, on rows from memory; marks what it comes to.

paceline run --workers 2 --snapshot-dir DIR --snapshot-every 20 keras_worker.py
"""

from marks import mark, mark_once

mark("script")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402, F401  # as most scripts do

mark("imported")

BATCH = 128
L = keras.layers


class Marks(keras.callbacks.Callback):
    same_on_all_ranks = True  # it decides nothing

    def on_train_begin(self, logs=None) -> None:
        mark("fit")

    def on_train_batch_begin(self, batch, logs=None) -> None:
        mark_once("ready")

    def on_train_batch_end(self, batch, logs=None) -> None:
        mark("step", int(self.model.optimizer.iterations.numpy()))


def main() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.random((6400, 28, 28), dtype=np.float32), generator.integers(0, 10, 6400)
    body = [L.Conv2D(32, 3, activation="relu"), L.Flatten(), L.Dense(128, activation="relu")]
    model = keras.Sequential([keras.Input((28, 28)), L.Reshape((28, 28, 1)), *body, L.Dense(10)])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(0.001),
        metrics=["accuracy"],
    )
    mark("compiled")
    model.fit(x, y, batch_size=BATCH, epochs=100_000, verbose=0, callbacks=[Marks()])


main()
