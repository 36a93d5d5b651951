"""One training job for `test_goes_on_by_hand.py`: a rank that nobody launched, which may strike itself at a step.

python goes_on_by_hand.py RANK [SIGNAL STEP]
python goes_on_by_hand.py 0 undisturbed            one process, without snapshots
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import paceline
from paceline.callbacks import Snapshot

SNAPSHOTS = Path("snapshots")


class Struck(keras.callbacks.Callback):
    same_on_all_ranks = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if [str(int(self.model.optimizer.iterations))] == sys.argv[3:]:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not [*SNAPSHOTS.glob("step-*/manifest.json")]:
                time.sleep(0.05)  # a blow that strikes before anything is on disk would test nothing
            os.kill(os.getpid(), signal.Signals[sys.argv[2]])


keras.config.set_floatx("float64")
strategy = paceline.MultiWorkerMirroredStrategy()
assert paceline.rank() == int(sys.argv[1])
keras.utils.set_random_seed(5)
features = np.random.default_rng(0).normal(size=(120, 8))
labels = (features.sum(axis=1) > 0).astype("int32")
data = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(64).batch(12)
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(2)]
    )
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
callbacks = [] if "undisturbed" in sys.argv else [Struck(), Snapshot(SNAPSHOTS, every_steps=1)]
history = model.fit(data, epochs=3, verbose=0, callbacks=callbacks).history
weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
print("END", [*weights.tolist(), *history["loss"]], flush=True)
