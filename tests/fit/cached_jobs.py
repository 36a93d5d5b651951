"""Training on data that TensorFlow keeps in files: one function a case, each run by every rank of a world."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

ROWS, BATCH = 40, 7


def _rows(first: int) -> tf.data.Dataset:
    rows = tf.data.Dataset.range(first, first + ROWS)
    return rows.map(lambda row: (tf.cast([row % 7, row % 3], tf.float64), tf.cast([row % 5], tf.float64)))


def _trained(data: tf.data.Dataset) -> dict[str, Any]:
    keras.config.set_floatx("float64")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model.fit(data.batch(BATCH), epochs=3, verbose=0).history


def run_case(name: str, directory: str) -> Any:
    folder = Path(directory)
    if name == "cache":
        return [_trained(_rows(0).cache(str(folder / "rows"))), sorted(one.name for one in folder.iterdir())]
    if name == "cache that is there":  # of other rows, by the same name
        return _trained(_rows(1000).cache(str(folder / "rows")))
    if name == "cache named in a function":
        names = tf.data.Dataset.from_tensor_slices([str(folder / "a"), str(folder / "b")])
        return _trained(names.interleave(lambda one: _rows(0).cache(one), cycle_length=1))
    if name == "snapshot":
        return _trained(_rows(0).snapshot(str(folder / "snapshot")))
    _rows(0).save(str(folder / "saved"))
    runs = [one for one in (folder / "saved").iterdir() if one.is_dir()]
    return [_trained(tf.data.Dataset.load(str(folder / "saved"))), len(runs)]


def _killed_while_the_cache_is_written() -> None:
    """The script's process is killed in its first epoch, behind two snapshots."""
    folder = Path(sys.argv[1])

    class Killed(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 4 and not (folder / "killed").exists():
                (folder / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    keras.config.set_floatx("float64")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    data = _rows(0).cache(str(folder / "rows")).batch(BATCH)
    losses = model.fit(data, epochs=3, verbose=0, callbacks=[Killed()]).history["loss"]
    np.save(folder / "losses.npy", losses)


if __name__ == "__main__":
    _killed_while_the_cache_is_written()
