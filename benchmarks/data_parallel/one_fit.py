"""One process of one job: a plain `model.fit` with an ordinary callback, whose epochs (blocks of steps) wait for turns.

python one_fit.py DIRECTORY JOB plain|raw|paceline   (also under `paceline run` and `mpiexec`; "raw" calls MPI itself)
"""

import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DIRECTORY, JOB, KIND = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
BATCH = 64
BLOCKS, STEPS = int(os.environ["BENCH_BLOCKS"]), 30
L = keras.layers


class Turns(keras.callbacks.Callback):
    """Waits for the job's turn before each epoch, and notes when each step has ended."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.times: list[float] = []
        self.go = os.open(DIRECTORY / f"{JOB}-{rank}.go", os.O_RDWR)
        self.done = os.open(DIRECTORY / "done", os.O_RDWR)

    def on_epoch_begin(self, epoch, logs=None) -> None:
        os.read(self.go, 1)
        self.times = []
        self.cpu = time.process_time()

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.times.append(time.perf_counter())

    def on_epoch_end(self, epoch, logs=None) -> None:
        cpu_ms = (time.process_time() - self.cpu) / STEPS * 1e3
        step_ms = float(np.median(np.diff(self.times)[3:])) * 1e3
        line = json.dumps({"job": JOB, "rank": self.rank, "step_ms": step_ms, "cpu_ms": cpu_ms})
        os.write(self.done, line.encode() + b"\n")


class AllReduce(keras.callbacks.Callback):
    """After each batch MPI's own all-reduce of as many bytes as the gradient, on one flat buffer."""

    def on_train_begin(self, logs=None) -> None:
        from mpi4py import MPI

        self.ranks = MPI.COMM_WORLD
        self.sent = np.ones(sum(int(np.prod(v.shape)) for v in self.model.trainable_variables), np.float32)
        self.received = np.empty_like(self.sent)

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.ranks.Allreduce(self.sent, self.received)


def rank_here() -> int:
    if KIND == "raw":
        from mpi4py import MPI

        return MPI.COMM_WORLD.Get_rank()
    return int(os.environ["PACELINE_RANK" if KIND == "paceline" else "BENCH_RANK"])


def data() -> tf.data.Dataset:
    """As the script of one worker says it; Paceline's two get global batches of twice the rows."""
    rows = BATCH * (2 if KIND == "paceline" else 1)
    generator = np.random.default_rng(0)
    x, y = generator.random((6400, 28, 28), dtype=np.float32), generator.integers(0, 10, 6400)
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(6400, seed=1).repeat().batch(rows).prefetch(2)


def main() -> None:
    rank = rank_here()
    if KIND != "paceline":  # which binds its workers in the same way
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            L.Reshape((28, 28, 1)),
            L.Conv2D(32, 3, activation="relu"),
            L.Flatten(),
            L.Dense(128, activation="relu"),
            L.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(0.001),
        metrics=["accuracy"],
    )
    callbacks = [*([AllReduce()] if KIND == "raw" else []), Turns(rank)]
    model.fit(data(), epochs=BLOCKS + 1, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)


main()
