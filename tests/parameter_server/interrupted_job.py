"""On the chief: trains with snapshots; tells what has come out. ``interrupted_job.py FAULT``

FAULT: `kill` kills the parameter server after some steps, and the chief in the next generation; `leave` tells the job
to leave. Of the job that leaves, the workers read the data by themselves.
"""

import json
import os
import signal
import sys
from typing import Any

import keras
import numpy as np
import psutil
import tensorflow as tf

import paceline

ROWS, WIDTH, BATCH = 320, 8, 4
AFTER_STEPS = {"1": 130, "2": 230}
"""By generation: in the second epoch, and in the third."""


class Fault(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        generation = os.environ["PACELINE_GENERATION"]
        if self.num_steps() != AFTER_STEPS.get(generation):
            return
        if sys.argv[1] == "leave":
            os.kill(os.getppid(), signal.SIGTERM)
        elif sys.argv[1] == "kill" and generation == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        elif sys.argv[1] == "kill":
            [server] = [
                one
                for one in psutil.process_iter()
                if one.ppid() == os.getppid() and one.environ().get("PACELINE_TASK") == "ps 0"
            ]
            server.send_signal(signal.SIGKILL)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch
        self.batches = 0

    def num_steps(self) -> int:
        self.batches += 1
        return self.epoch * ROWS // BATCH + self.batches


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
    metrics = [kind(name=kind.__name__) for kind in COUNTS]
    model.compile(keras.optimizers.Adam(1e-3), "binary_crossentropy", metrics=metrics)


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH)


data = {"x": x, "y": y, "batch_size": BATCH}
if sys.argv[1].endswith("leave"):
    data = {"x": dataset, "steps_per_epoch": ROWS // BATCH}
history = model.fit(**data, epochs=4, verbose=0, callbacks=[Fault()]).history
told = {
    "iterations": int(model.optimizer.iterations.numpy()),
    "rows": [sum(history[kind.__name__][epoch] for kind in COUNTS) for epoch in range(4)],
}
print("told " + json.dumps(told), flush=True)
