"""A small model over rows that carry their number; dies once in its second epoch, and goes on when it is started again.

It writes the rows of each step, and after how many updates of the weights they came, from inside the step.

python rows_worker.py backup DIR
paceline run --max-restarts 1 --snapshot-dir DIR/snapshots --snapshot-every 20 rows_worker.py paceline DIR
"""

import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

SYSTEM, FOLDER = sys.argv[1], Path(sys.argv[2])
ROWS, BATCH, EPOCHS, EVERY_STEPS, DIES_AFTER_STEPS = 6400, 32, 3, 20, 277


class Telling(keras.Sequential):
    def train_step(self, data):
        x, _ = data
        numbers = tf.cast(x[:, 0], tf.int32)
        tf.print(self.optimizer.iterations, numbers, summarize=-1, output_stream=f"file://{FOLDER}/rows.txt")
        return super().train_step(data)


class Dying(keras.callbacks.Callback):
    same_on_all_ranks = True

    def on_train_batch_end(self, batch, logs=None) -> None:
        has_died = FOLDER / "has_died"
        if not has_died.exists() and int(self.model.optimizer.iterations.numpy()) == DIES_AFTER_STEPS:
            has_died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    keras.utils.set_random_seed(1)
    generator = np.random.default_rng(0)
    x = generator.random((ROWS, 9), dtype=np.float32)
    x[:, 0] = np.arange(ROWS)
    model = Telling([keras.Input((9,)), keras.layers.Rescaling(1 / ROWS), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer="adam")
    backup = [keras.callbacks.BackupAndRestore(str(FOLDER / "backup"), save_freq=EVERY_STEPS)]
    callbacks = [*(backup if SYSTEM == "backup" else []), Dying()]
    model.fit(x, x[:, 1], batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=callbacks)


main()
