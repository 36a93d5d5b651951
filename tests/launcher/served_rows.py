"""``served_rows.py FOLDER PIPELINE EPOCHS``: trains, and writes down the rows of each step.

In FOLDER each rank has a file ``rows-RANK``, in which a line is a JSON object: generation, step and rows. Without
Paceline the script is plain Keras. A file `slow` makes steps wait for a file `go` behind the third one of a generation.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

folder, pipeline, epochs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
is_plain = "PACELINE_RANK" not in os.environ
rank, generation = os.environ.get("PACELINE_RANK", "0"), int(os.environ.get("PACELINE_GENERATION", "1"))


def numbers(end: int, batch_size: int) -> tf.data.Dataset:
    rows = tf.data.Dataset.range(end).shuffle(end)
    if pipeline == "unknown":
        rows = rows.shuffle(7).filter(lambda row: True)
    return rows.map(lambda row: (tf.cast(row, tf.float32)[tf.newaxis], 0.0)).batch(batch_size)


def note(step: np.ndarray, rows: np.ndarray) -> np.ndarray:
    line = {"generation": generation, "step": int(step), "rows": rows.ravel().astype(int).tolist()}
    with (folder / f"rows-{rank}").open("a") as file:
        file.write(json.dumps(line) + "\n")
    noted.append(line)
    while (folder / "slow").exists() and len(noted) > 3 and not (folder / "go").exists():
        time.sleep(0.02)
    return np.int64(0)


class Noting(keras.Sequential):
    """Writes down the rows that it trains on."""

    def train_step(self, data):
        done = tf.numpy_function(note, [tf.convert_to_tensor(self.optimizer.iterations), data[0]], tf.int64)
        with tf.control_dependencies([done]):
            return super().train_step(data)


class Epochs(keras.callbacks.Callback):
    """Writes down where an epoch begins."""

    def on_epoch_begin(self, epoch, logs=None):
        with (folder / f"epochs-{rank}").open("a") as file:
            file.write(f"{generation} {epoch} {int(self.model.optimizer.iterations)}\n")


noted: list[dict] = []
tf.random.set_seed(1)
train, validated = numbers(20, 8), numbers(5, 3)
if pipeline == "two sizes":
    train = tf.data.Dataset.zip((train, numbers(20, 3)))
if not is_plain:
    import paceline

    train, validated = paceline.data.service(train), paceline.data.service(validated)
model = Noting([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
model.compile(keras.optimizers.SGD(1e-4), "mse", jit_compile=False)
history = model.fit(train, epochs=epochs, validation_data=validated, verbose=0, callbacks=[Epochs()])
model.fit(train, epochs=1, steps_per_epoch=2, verbose=0)
history.history["val_loss"].append(model.evaluate(validated, verbose=0))
if rank == "0":
    (folder / "losses").write_text(json.dumps(history.history["val_loss"]))
