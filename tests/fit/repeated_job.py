"""Two calls of `fit` on one shuffle below `repeat`, of which the second may be killed; the chief prints the losses."""

import os
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf


class AwaitsSnapshot(keras.callbacks.Callback):
    """Within the second fit waits for the snapshot in which the first one has ended, which is passed over later."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if int(self.model.optimizer.iterations) != 24:
            return
        give_up_at = time.monotonic() + 100
        while not [*_FOLDER.glob("step-*/manifest.json")]:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)  # asks again until the snapshot is there; nothing says when it is written


_FOLDER = Path(os.environ.get("PACELINE_SNAPSHOT_DIR", "."))

keras.config.set_floatx("float64")
keras.utils.set_random_seed(3)
x = np.random.default_rng(0).normal(size=(100, 3))
data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).shuffle(2000).repeat().batch(10)
data = data.prefetch(tf.data.AUTOTUNE)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
losses = []
for callbacks in ([], [AwaitsSnapshot()] if "PACELINE_SNAPSHOT_DIR" in os.environ else []):
    losses += model.fit(data, epochs=2, steps_per_epoch=9, callbacks=callbacks, verbose=0).history["loss"]
print("END", losses, int(next(iter(data))[0][0, 0].numpy() * 1e12), flush=True)
