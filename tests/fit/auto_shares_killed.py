"""A training job for `test_auto_shares.py` whose shares change every few steps, and of which a worker is killed.

    auto_shares_killed.py STEP          the last worker is killed behind this step; -1: nobody is

Without ``PACELINE_RANK`` it is plain Keras. Rows are chosen in front of a map, and read ahead: the state of an iterator
has rows of batches to come, by the shares of then.
"""

import os
import signal
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

RANK = os.environ.get("PACELINE_RANK", "")
STEP = int(sys.argv[1])

if os.environ.get("PACELINE_SHARES") == "auto":
    from rotating_shares import rotate

    rotate()


class Killed(keras.callbacks.Callback):
    same_on_all_ranks = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if RANK and int(self.model.optimizer.iterations) == STEP:
            from paceline.fit.snapshots import resumable_fit

            for manager in resumable_fit._process.managers.values():
                assert manager.finish(60)
            if RANK == "1":
                os.kill(os.getpid(), signal.SIGKILL)


keras.config.set_floatx("float64")
keras.utils.set_random_seed(3)
features = np.random.default_rng(0).normal(size=(241, 8))
rows = tf.data.Dataset.from_tensor_slices((features, (features.sum(1) > 0).astype("int32"))).shuffle(40, seed=1)
data = rows.map(lambda x, y: (x * 2.0, y)).batch(12).prefetch(5)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(data, epochs=3, verbose=0, callbacks=[Killed()])
print("END", [float(value) for value in np.concatenate([each.ravel() for each in model.get_weights()])])
