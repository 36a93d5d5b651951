"""``data_groups.py FOLDER``: ranks in two equal data groups, each of which trains a model of its own with `fit`.

Alone, one process trains both, one after the other. Writes ``FOLDER/MODEL.RANK.npz``: weights, history, predictions.
"""

import faulthandler
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import paceline
from paceline.comm.world import current_world

faulthandler.dump_traceback_later(200, exit=True)
keras.config.set_floatx("float64")
folder = Path(sys.argv[1])
world = current_world()
if world.size > 1:
    world.arrange({"stage": 2, "data": world.size // 2})
strategy = paceline.MultiWorkerMirroredStrategy()
assert strategy.num_replicas_in_sync == world.data.size == max(1, world.size // 2)


class AwaitsSnapshot(keras.callbacks.Callback):
    """At one step of the first generation, waits for a snapshot of this model: whoever is killed later can resume."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        store = os.environ.get("PACELINE_SNAPSHOT_DIR")
        if store is None or int(self.model.optimizer.iterations) != self.step:
            return
        own = Path(store) / "group-1" if world.rank >= world.size // 2 else Path(store)
        give_up_at = time.monotonic() + 100
        while not [*own.glob("step-*/manifest.json")]:
            assert time.monotonic() < give_up_at, f"no snapshot in {own}"
            time.sleep(0.01)


def regression() -> None:
    """Batches of 12 rows and one of 5; two epochs."""
    random = np.random.default_rng(3)
    x, y = random.normal(size=(53, 6)), random.normal(size=(53, 1))
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(9, "tanh"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.03, clipnorm=0.5), "mse", metrics=["mae"])
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(53, seed=2).batch(12)
    finish("regression", model, model.fit(data, epochs=2, callbacks=[AwaitsSnapshot(6)], verbose=0), x)


def classification() -> None:
    """Other shapes, other numbers of steps and epochs, weights that layers assign, and a validation."""
    random = np.random.default_rng(4)
    x, y = random.normal(size=(64, 5)), random.integers(0, 3, 64)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([5]),
                keras.layers.Dense(7),
                keras.layers.BatchNormalization(synchronized=True),
                keras.layers.Dropout(0.3, seed=5),
                keras.layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    stop = keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=0.001)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    callbacks = [stop, AwaitsSnapshot(19)]
    finish("classification", model, model.fit(data, validation_data=data, epochs=7, callbacks=callbacks, verbose=0), x)


def finish(name: str, model: keras.Model, history: keras.callbacks.History, x: np.ndarray) -> None:
    predicted = model.predict(tf.data.Dataset.from_tensor_slices(x).batch(10), verbose=0)
    weights = {f"weight{number}": weight for number, weight in enumerate(model.get_weights())}
    np.savez(folder / f"{name}.{world.rank}.npz", predicted=predicted, **weights, **history.history)


keras.utils.set_random_seed(11)
if world.rank < max(1, world.size // 2):
    regression()
if world.size == 1 or world.rank >= world.size // 2:
    keras.utils.set_random_seed(11)
    classification()
if world.size > 1:
    [total] = world.group.all_reduce([np.array(1 << world.rank)])  # after all, the groups meet in the one of all ranks
    assert total == (1 << world.size) - 1
