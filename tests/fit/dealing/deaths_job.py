"""On the chief: training, an evaluation and a prediction, in each of which a worker is killed; tells what has come out.

Then another one is killed, too, while no restart is left, and the first still comes back.

Run by ``paceline run --workers 3 --ps 1 --max-restarts 3``.
"""

import json
import logging
import os
import signal
import time
from typing import Any

import keras
import numpy as np
import psutil

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
    for process in psutil.process_iter():
        if process.ppid() == os.getppid() and process.environ().get("PACELINE_TASK") == f"worker {index}":
            process.send_signal(signal.SIGKILL)
            process_has_ended(process)


class Told(logging.Handler):
    """Keeps what Paceline says."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def await_return(number: int) -> None:
    """Returns when worker 1 has come back so many times."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while said.texts.count("worker 1 takes steps again") < number:
        assert time.monotonic() < deadline, said.texts
        time.sleep(0.05)


def process_has_ended(process: psutil.Process) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
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
with strategy.scope():
    model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1, "sigmoid")])
    metrics = ["accuracy", keras.metrics.AUC(name="auc"), *(kind(name=kind.__name__) for kind in COUNTS)]
    model.compile(keras.optimizers.Adam(1e-3), "binary_crossentropy", metrics=metrics)
in_fit, in_evaluate, in_predict = Death(1), Death(1), Death(1)
model.fit(x[:200], y[:200], batch_size=BATCH, verbose=0)  # at its end both workers have made their first step
said = Told()
logging.getLogger("paceline").addHandler(said)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[in_fit]).history
await_return(1)
evaluated = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True, callbacks=[in_evaluate])
await_return(2)
predicted = model.predict(x, batch_size=BATCH, verbose=0, callbacks=[in_predict])
local = keras.models.clone_model(model)
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
await_return(3)
model.fit(x[:200], y[:200], batch_size=BATCH, verbose=0)
told["iterations at the end"] = int(model.optimizer.iterations.numpy())
print("told " + json.dumps(told), flush=True)
