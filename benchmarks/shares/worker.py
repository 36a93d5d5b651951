"""Trains on two workers, of which the second one may share its core with processes that only burn time.

    worker.py SPINNERS STEPS

SPINNERS 1: it has a half of its core, 2: a third. The chief tells how long each step took, and when shares changed.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SPINNERS, STEPS = int(sys.argv[1]), int(sys.argv[2])
RANK = int(os.environ["PACELINE_RANK"])
_SPIN = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import paceline.events  # noqa: E402

BATCH = 384


class Times(keras.callbacks.Callback):
    """When each step has ended."""

    same_on_all_ranks = True

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []
        self.changes: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append(time.perf_counter())

    def hear(self, event: Any) -> None:
        if isinstance(event, paceline.events.SharesChanged):
            self.changes.append(len(self.ends))


def main() -> None:
    spinners = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(SPINNERS if RANK == 1 else 0)]
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(4),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rows = np.random.default_rng(0)
    x, y = rows.normal(size=(16 * BATCH, 28, 28, 1)).astype("float32"), rows.integers(0, 10, 16 * BATCH)
    times = Times()
    paceline.events.subscribe(times.hear)
    try:
        model.fit(x, y, batch_size=BATCH, epochs=-(-STEPS // 16), verbose=0, callbacks=[times])
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    if RANK == 0:
        result = {"seconds": np.diff(times.ends).tolist(), "changes": times.changes}
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))


main()
