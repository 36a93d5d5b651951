"""Many short epochs with validation, on rows in memory; notes the resident memory after each.

paceline run --workers 2 --snapshot-dir DIR --snapshot-every 10 keras_worker.py EPOCHS FOLDER
python keras_worker.py EPOCHS FOLDER
"""

import json
import os
import sys
from pathlib import Path

import keras
import numpy as np
import psutil

EPOCHS, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
STEPS, BATCH, VALIDATION_STEPS = 10, 64, 3
RANK = int(os.environ.get("PACELINE_RANK", "0"))
L = keras.layers


class Memory(keras.callbacks.Callback):
    same_on_all_ranks = True  # it decides nothing

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []
        self.process = psutil.Process()

    def on_epoch_end(self, epoch, logs=None) -> None:
        self.bytes.append(self.process.memory_info().rss)


def main() -> None:
    generator = np.random.default_rng(0)
    rows = STEPS * BATCH
    x, y = generator.random((rows, 28, 28), dtype=np.float32), generator.integers(0, 10, rows)
    held_out = x[: VALIDATION_STEPS * BATCH], y[: VALIDATION_STEPS * BATCH]
    body = [L.Conv2D(8, 3, strides=2, activation="relu"), L.Dropout(0.1), L.Flatten(), L.Dense(64, activation="relu")]
    model = keras.Sequential([keras.Input((28, 28)), L.Reshape((28, 28, 1)), *body, L.Dense(10)])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer="adam", metrics=["accuracy"]
    )
    memory = Memory()
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, validation_data=held_out, verbose=0, callbacks=[memory])
    Path(FOLDER, f"{RANK}.json").write_text(json.dumps(memory.bytes))


main()
