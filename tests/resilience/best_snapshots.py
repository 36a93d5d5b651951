"""Two fits for `test_best_snapshots.py`, which keep the snapshots of their best epochs."""

import json
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import paceline
from paceline.callbacks import Snapshot
from paceline.fit.snapshots import resumable_fit
from paceline.store.retention import METRICS_EPOCH
from paceline.store.snapshots import SnapshotStore


class Waits(keras.callbacks.Callback):
    """Steps are longer than it takes to write a snapshot; notes the weight at the end of each epoch."""

    same_on_all_ranks = True

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = directory
        self.weights: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        deadline = time.monotonic() + 60
        while epoch > 0 and self._newest_epoch() < epoch - 1:
            assert time.monotonic() < deadline, "the snapshot of the end of the epoch is not there"
            time.sleep(0.02)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for manager in resumable_fit._process.managers.values():
            assert manager.finish(60)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.weights = [*self.weights, float(self.model.get_weights()[0][0, 0])]

    def _newest_epoch(self) -> int:
        notes = [getattr(entry, "notes", {}) for entry in SnapshotStore(self.directory).entries()]
        return max((int(one.get(METRICS_EPOCH, -1)) for one in notes), default=-1)


strategy = paceline.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(5)
x = np.random.default_rng(0).uniform(0.9, 1.1, (16, 1)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, 10 * x)).shuffle(16).batch(8)
validation_data = tf.data.Dataset.from_tensor_slices((x, 6 * x)).batch(8)
with strategy.scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.1), "mse")
first, second = Waits("first"), Waits("second")
histories = [
    model.fit(data, epochs=5, validation_data=validation_data, verbose=0, callbacks=[first]).history,
    model.fit(
        data, epochs=3, verbose=0, callbacks=[second, Snapshot("second", every_seconds=600, keep="best:1:loss:max")]
    ).history,
]
if paceline.rank() == 0:
    print("END", json.dumps([histories, [first.weights, second.weights]]), flush=True)
