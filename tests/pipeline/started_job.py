"""``started_job.py HOW``: two stages, however they were started.

HOW: "ends", "fails" (the last stage), "goes on", or "saves alone" (rank 0).
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import paceline


class Checks(keras.layers.Layer):
    """Hands its rows on; fails if one is not a number."""

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.debugging.check_numerics(rows, "this layer gives up")


class Tells(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if batch == 2:
            print("trains", flush=True)


keras.utils.set_random_seed(4)
rows = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")
if sys.argv[1] == "fails":
    rows[20] = np.nan
with paceline.PipelineStrategy(stages=2, micro_batches=2).scope():
    layers = [keras.layers.Dense(5, "tanh", name="first"), keras.layers.Dropout(0.2), Checks(name="checks")]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse")
epochs = 100_000 if sys.argv[1] == "goes on" else 2
history = model.fit(rows, rows[:, 0], batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=[Tells()])
print("END", [float(value).hex() for value in history.history["loss"]], flush=True)
if sys.argv[1] == "saves alone" and paceline.rank() == 0:
    model.save("alone.keras")
if sys.argv[1] == "saves alone":
    model.fit(rows, rows[:, 0], batch_size=8, verbose=0)
