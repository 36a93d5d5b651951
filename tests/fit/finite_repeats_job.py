"""Three calls of `fit` on shuffles below finite repeats; the second may be killed. The chief prints the losses."""

import os
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

_FOLDER = Path(os.environ.get("PACELINE_SNAPSHOT_DIR", "."))
_STEPS_OF_FIRST, _STEPS_OF_SECOND = 24, 7


class AwaitsSnapshot(keras.callbacks.Callback):
    """In the second epoch of the second fit waits for a snapshot in that epoch."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        step, first = int(self.model.optimizer.iterations), _STEPS_OF_FIRST + _STEPS_OF_SECOND
        if step != first + 4:
            return
        give_up_at = time.monotonic() + 100
        while not any(int(one.parent.name[5:]) > first for one in _FOLDER.glob("step-*/manifest.json")):
            assert time.monotonic() < give_up_at
            time.sleep(0.01)  # asks again until the snapshot is there; nothing says when it is written


keras.config.set_floatx("float64")
keras.utils.set_random_seed(3)
x = np.random.default_rng(0).normal(size=(30, 3))
x[:5, 0], x[5:, 0] = -2, np.abs(x[5:, 0])


def shuffled():
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).shuffle(30)


mapped = shuffled().map(lambda x, y: (x * 2 - 1, y)).repeat(3).batch(8)
filtered = shuffled().filter(lambda x, y: x[0] > -1).repeat(2).batch(8)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
losses = model.fit(mapped, epochs=2, verbose=0).history["loss"]
waits = [AwaitsSnapshot()] if "PACELINE_SNAPSHOT_DIR" in os.environ else []
losses += model.fit(filtered, epochs=3, callbacks=waits, verbose=0).history["loss"]
losses += model.fit(mapped, epochs=2, verbose=0).history["loss"]
after = [float(next(iter(data))[0][0, 1]) for data in (mapped, filtered)]
print("END", losses + after, flush=True)
