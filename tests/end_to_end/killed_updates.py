"""A model of two million weights, whose update is a loop; a rank is killed RANK,STEP,PART (``-``: none is).

A loss that is linear in the weights: its gradients are sums of integers, the same bits for any number of workers, and
so is all that Adam makes of them. PART is which part of a usual step has passed, from 0 to 1: the update is its end.
"""

import hashlib
import os
import signal
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from paceline import rank

STEPS = 30
BATCH = 8
killed = sys.argv[1]


class Kill(keras.callbacks.Callback):
    """Kills this process somewhere within a step: of `step`, or of the third that this process takes."""

    def __init__(self, step: int, part: float) -> None:
        super().__init__()
        self.step, self.part = step, part
        self.begun, self.usual, self.num_taken = 0.0, 0.0, 0

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self.begun = time.monotonic()
        if int(self.model.optimizer.iterations) >= self.step and self.num_taken >= 2:
            self.step = 2 * STEPS  # once
            threading.Thread(target=self.kill, daemon=True).start()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.num_taken += 1
        if self.num_taken > 1:  # the first one was traced
            now = time.monotonic() - self.begun
            self.usual = min(self.usual or now, now)

    def kill(self) -> None:
        time.sleep(self.part * self.usual)  # no order rests on this: the moment of the kill is what the test draws
        os.kill(os.getpid(), signal.SIGKILL)


keras.utils.set_random_seed(7)
numbers = np.random.default_rng(5)
x = numbers.integers(-8, 9, (BATCH * STEPS // 2, 1024)).astype("float32")
y = numbers.integers(1, 5, len(x)).astype("float32")
model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(2048)])
model.compile(keras.optimizers.Adam(0.01, weight_decay=0.004), lambda y, rows: y * keras.ops.sum(rows, -1))
callbacks = []
if killed != "-":
    whom, step, part = killed.split(",")
    if int(whom) == rank():
        callbacks.append(Kill(int(step), float(part)))
model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=callbacks)
if rank() == 0:
    held = [*model.variables, *model.optimizer.variables]
    print("sum", hashlib.sha256(b"".join(one.numpy().tobytes() for one in held)).hexdigest(), flush=True)
