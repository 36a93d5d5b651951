"""``memory_job.py``: trains 1.5 GB of weights and slots; prints how much memory above idle TensorFlow that took."""

import contextlib
from pathlib import Path

import keras
import numpy as np

import paceline

WIDTH, DEPTH = 1400, 64


def status_mb(name: str) -> int:
    """A number of ``/proc/self/status``."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) // 1024


def trained(width: int, depth: int) -> None:
    """A few steps of a model of so many layers."""
    workers = paceline.world_size()
    scope = paceline.PipelineStrategy(stages=2, micro_batches=4).scope() if workers > 1 else contextlib.nullcontext()
    with scope:
        layers = [keras.layers.Dense(width, activation="relu", kernel_initializer="zeros") for _ in range(depth)]
        model = keras.Sequential([keras.Input((width,)), *layers])
        model.compile("adam", "mse")
    rows = np.ones((32, width), "float32")
    history = model.fit(rows, rows, batch_size=16, epochs=2, verbose=0).history
    assert len(history["loss"]) == 2


trained(8, 4)  # threads, their arenas, and what is made once
idle_mb = status_mb("VmRSS")
trained(WIDTH, DEPTH)
print(f"above idle: {status_mb('VmHWM') - idle_mb} MB", flush=True)
