"""A `fit` in which one rank is slow, as the arguments say, and then a digest of the weights.

python stragglers.py none|spinner|map|callback|quota RANK [CONTROL_GROUP]
"""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

KIND, SLOW = sys.argv[1], int(sys.argv[2])
RANK = int(os.environ.get("PACELINE_RANK", "0"))
GROUP = Path(sys.argv[3]) if KIND == "quota" else None
"""Has a quota."""
IS_SLOW = KIND != "none" and RANK == SLOW
ROWS, STEPS = 2560, 160
BATCH = int(os.environ.get("STRAGGLERS_BATCH", "128"))


class Late(keras.callbacks.Callback):
    """Does something that takes a while after each batch, on the slow rank."""

    same_on_all_ranks = True

    def on_train_batch_end(self, batch, logs=None):
        if IS_SLOW and KIND == "callback":
            time.sleep(0.03)


def nap(row, label):
    """The slow rank reads slowly; the values are the same."""
    if IS_SLOW and KIND == "map":
        time.sleep(0.0003)
    return row, label


if IS_SLOW and GROUP is not None:
    (GROUP / "cgroup.procs").write_text(str(os.getpid()))
keras.utils.set_random_seed(1)
layers = [keras.layers.Dense(768, activation="relu") for _ in range(3)]
model = keras.Sequential([keras.Input((256,)), *layers, keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.random.default_rng(0).normal(size=(ROWS, 256)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
if KIND == "map":
    data = data.map(lambda row, label: tf.numpy_function(nap, (row, label), (tf.float32, tf.float32)))
    data = data.map(lambda row, label: (tf.ensure_shape(row, (256,)), tf.ensure_shape(label, (1,))))
data = data.batch(BATCH).repeat()

spinner = None
if IS_SLOW and KIND == "spinner":  # a child shares the cores to which this worker is bound
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    model.fit(data, steps_per_epoch=STEPS, epochs=1, verbose=2, callbacks=[Late()])
finally:
    if spinner is not None:
        spinner.kill()
        spinner.wait()
values = b"".join(np.ascontiguousarray(value).tobytes() for value in model.get_weights())
print("weights", hashlib.sha256(values).hexdigest())
