"""``started_job.py HOW``: two stages, however they were started.

HOW: "ends", "fails" (the last stage), "goes on", or "saves alone" (rank 0).
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import paceline

FAILING_CALL = 5


class Counts(keras.layers.Layer):
    """Hands its rows on; raises at one of its calls, where the script is to fail."""

    calls = 0

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        return rows + tf.stop_gradient(
            0.0 * tf.ensure_shape(tf.numpy_function(self.counted, [rows], rows.dtype), rows.shape)
        )

    def counted(self, rows: np.ndarray) -> np.ndarray:
        self.calls += 1
        if sys.argv[1] == "fails" and self.calls == FAILING_CALL:
            raise ValueError("this layer gives up")
        return rows


class Tells(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if batch == 2:
            print("trains", flush=True)


keras.utils.set_random_seed(4)
rows = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")
with paceline.PipelineStrategy(stages=2, micro_batches=2).scope():
    layers = [keras.layers.Dense(5, "tanh", name="first"), keras.layers.Dropout(0.2), Counts(name="counts")]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse")
epochs = 100_000 if sys.argv[1] == "goes on" else 2
history = model.fit(rows, rows[:, 0], batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=[Tells()])
print("END", [float(value).hex() for value in history.history["loss"]], flush=True)
if sys.argv[1] == "saves alone" and paceline.rank() == 0:
    model.save("alone.keras")
if sys.argv[1] == "saves alone":
    model.fit(rows, rows[:, 0], batch_size=8, verbose=0)
