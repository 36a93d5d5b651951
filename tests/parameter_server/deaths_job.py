"""On the chief: a training in which a step does not end, so that the launcher ends its worker; then training, an
evaluation and a prediction, in each of which a worker is killed; tells what has come out.

Then another one is killed, too, while no restart is left, and the first still comes back.

Run by ``paceline run --workers 3 --ps 1 --max-restarts 4 --hang-timeout 15``.
"""

import contextlib
import json
import logging
import os
import re
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil
import tensorflow as tf
from blocking_layer import ENDLESS, Blocking, Trap

import paceline

ROWS, WIDTH, BATCH = 1600, 8, 4
KILLED_AFTER_STEPS = 60
LIMIT_SECONDS = 120.0


class Death(keras.callbacks.Callback):
    """Kills a worker in the middle.

    Args:
        index: Of the worker.
    """

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.num_steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.num_steps += 1
        if self.num_steps == KILLED_AFTER_STEPS:
            kill(self.index)

    on_test_batch_end = on_predict_batch_end = on_train_batch_end


def kill(index: int) -> None:
    """Kills a worker; returns when the process has ended."""
    for process in psutil.process_iter(["ppid", "environ"]):
        of_worker = (process.info["environ"] or {}).get("PACELINE_TASK") == f"worker {index}"
        if process.info["ppid"] == os.getppid() and of_worker:
            process.send_signal(signal.SIGKILL)
            process_has_ended(process)


class Told(logging.Handler):
    """Keeps what Paceline says."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Look(keras.callbacks.Callback):
    """Sees to it that the trap catches only one step."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        trap.has_caught_one()


def await_return(number: int) -> None:
    """Returns when workers have come back so many times."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while sum(re.match(r"worker \d takes steps again", text) is not None for text in said.texts) < number:
        assert time.monotonic() < deadline, said.texts
        time.sleep(0.05)


def process_has_ended(process: psutil.Process) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    with contextlib.suppress(psutil.NoSuchProcess):  # its parent may have waited for it by now
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.001)


strategy = paceline.ParameterServerStrategy()
keras.utils.set_random_seed(3)
random = np.random.default_rng(1)
x = random.normal(size=(ROWS, WIDTH)).astype("float32")
y = (x.sum(1, keepdims=True) > 0).astype("float32")
COUNTS = (
    keras.metrics.TruePositives,
    keras.metrics.FalsePositives,
    keras.metrics.TrueNegatives,
    keras.metrics.FalseNegatives,
)
trap = Trap(Path(tempfile.mkdtemp(dir=".")))


def layers(trap: Trap | None) -> list[Any]:
    return [keras.Input((WIDTH,)), Blocking(trap), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1, "sigmoid")]


with strategy.scope():
    model = keras.Sequential(layers(trap))
    metrics = ["accuracy", keras.metrics.AUC(name="auc"), *(kind(name=kind.__name__) for kind in COUNTS)]
    model.compile(keras.optimizers.Adam(1e-3), "binary_crossentropy", metrics=metrics)
in_fit, in_evaluate, in_predict = Death(1), Death(1), Death(1)
batches = tf.data.Dataset.from_tensor_slices((x[:200], y[:200])).batch(BATCH)
model.fit(batches, verbose=0)  # at its end all workers have made their first step
said = Told()
logging.getLogger("paceline").addHandler(said)
blocking = batches.take(1).map(lambda x, y: (x + ENDLESS, y))
model.fit(batches.take(4).concatenate(blocking).concatenate(batches), verbose=0, callbacks=[Look()])
await_return(1)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[in_fit]).history
await_return(2)
evaluated = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True, callbacks=[in_evaluate])
await_return(3)
predicted = model.predict(x, batch_size=BATCH, verbose=0, callbacks=[in_predict])
local = keras.Sequential(layers(None))
local.set_weights(model.get_weights())
local.compile(loss="binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(name="auc")])
told = {
    "iterations": int(model.optimizer.iterations.numpy()),
    "rows": [sum(history[kind.__name__][epoch] for kind in COUNTS) for epoch in range(2)],
    "evaluated": evaluated,
    "expected": local.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True),
    "difference": float(np.abs(local.predict(x, batch_size=BATCH, verbose=0) - predicted).max()),
}
kill(2)
await_return(4)
model.fit(x[:200], y[:200], batch_size=BATCH, verbose=0)
told["iterations at the end"] = int(model.optimizer.iterations.numpy())
print("told " + json.dumps(told), flush=True)
