"""Trains with naps in known places, and prints how much of the time of its steps they took.

Usage: step_times.py WHERE [RANK]: only this rank naps there.
"""

import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf

where, only = sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else None
rank = int(os.environ["PACELINE_RANK"])
naps = only is None or rank == only
NAP_SECONDS = 0.06
EPOCHS, STEPS = 2, 50


def nap(place: str) -> None:
    if where == place and naps:
        time.sleep(NAP_SECONDS)


def napping(place: str, tensor: tf.Tensor) -> tf.Tensor:
    def call(given: np.ndarray) -> np.ndarray:
        nap(place)
        return given

    result = tf.numpy_function(call, [tensor], tensor.dtype)
    result.set_shape(tensor.shape)
    return result


class Clock(keras.callbacks.Callback):
    """Naps, and takes the time of all steps but the first."""

    same_on_all_ranks = where != "watched"  # else ranks agree after each batch on what it has decided
    seconds = 0.0
    steps = 0
    last: float | None = None

    def on_epoch_begin(self, epoch, logs=None):
        self.last = None

    def on_train_batch_end(self, batch, logs=None):
        nap("callback")
        nap("watched")
        now = time.perf_counter()
        if self.last is not None:
            self.seconds += now - self.last
            self.steps += 1
        self.last = now


keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.random.default_rng(0).normal(size=(STEPS * 8, 8)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)
if where == "map":
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    data = data.map(lambda rows, labels: (napping("map", rows), labels)).with_options(options)
clock = Clock()
validation = (x[:16], x[:16, :1]) if where == "map" else None
if where == "map" and rank == 0 == int(os.environ["PACELINE_WORLD_SIZE"]) - 1:
    model.fit(x[:8], x[:8, :1], verbose=0, validation_data=validation)  # the next fit traces nothing anew
model.fit(data, epochs=EPOCHS, verbose=2, callbacks=[clock], validation_data=validation)
per_step = clock.seconds / clock.steps
print(f"measured: step {1000 * per_step:.1f} ms, naps {100 * NAP_SECONDS / per_step:.0f} %", flush=True)
