"""Two fits with naps in known places, and deaths where ``accounted.py DEATHS`` says: ``1:7:1 2:19:0`` stands for a
death of rank 1 in generation 1 once 7 steps are done, and of the chief in generation 2 once 19 are.

The chief writes each step that is done to ``steps``, also one that had been done before.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np

GENERATION, RANK = os.environ["PACELINE_GENERATION"], os.environ["PACELINE_RANK"]
STEP_SECONDS, VALIDATION_SECONDS, SCRIPT_SECONDS = 0.15, 0.5, 1.5
TOLD_SECONDS = 120.0
BEFORE_DEATH_SECONDS = 1.0
"""What the account is to show as the time until a death is detected."""


def wait_until_told(step: int) -> None:
    """Until the launcher has heard of the step from all ranks, as `paceline status` says: it is exact then."""
    command = [sys.executable, "-m", "paceline", "status", os.environ["PACELINE_JOB_ID"], "--json"]
    heard: list[int | None] = []
    give_up_at = time.monotonic() + TOLD_SECONDS
    while not heard or any(one is None or one < step for one in heard):
        assert time.monotonic() < give_up_at, heard
        told = subprocess.run(command, capture_output=True, check=True, timeout=60)
        heard = [worker["step"] for worker in json.loads(told.stdout)["workers"] if worker["rank"] is not None]


noted: list[int] = []
"""Of this process: what a callback holds comes back with a snapshot."""


class Naps(keras.callbacks.Callback):
    """Naps in each step, and dies before some."""

    same_on_all_ranks = True

    def note(self) -> None:
        step = int(self.model.optimizer.iterations)
        if RANK == "0" and noted and step > noted[-1]:
            with Path("steps").open("a") as file:
                file.write(f"{GENERATION} {step}\n")
        noted.append(step)
        if f"{GENERATION}:{step}:{RANK}" in sys.argv[1:]:
            wait_until_told(step)
            time.sleep(BEFORE_DEATH_SECONDS)
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_begin(self, batch, logs=None):
        self.note()

    def on_epoch_end(self, epoch, logs=None):
        self.note()

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(STEP_SECONDS)
        if f"{GENERATION}:{int(self.model.optimizer.iterations)}:told" in sys.argv[1:]:
            os.kill(os.getppid(), signal.SIGTERM)  # the launcher

    def on_test_end(self, logs=None):
        time.sleep(VALIDATION_SECONDS)


keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
rows = np.random.default_rng(0).normal(size=(48, 4)).astype("float32")
for _ in range(2):
    held = (rows[:8], rows[:8, 0])
    model.fit(rows, rows[:, 0], batch_size=8, epochs=2, verbose=0, validation_data=held, callbacks=[Naps()])
    time.sleep(SCRIPT_SECONDS)
