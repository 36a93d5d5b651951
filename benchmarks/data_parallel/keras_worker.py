"""One rank of the MNIST CNN (or the small-gradient model) in Keras 3: under Paceline, or meeting at a barrier only.

paceline run --workers 2 keras_worker.py paceline|barrier cnn|small_gradient
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from paceline.comm.world import current_world

VARIANT, MODEL = sys.argv[1:3]
BATCH = 64
WARM_UP_STEPS, STEPS = 30, {"cnn": 200, "small_gradient": 60}[sys.argv[2]]
L = keras.layers


def build() -> keras.Model:
    if MODEL == "cnn":  # 2.8 million parameters, 11 MB of gradient
        body = [L.Conv2D(32, 3, activation="relu"), L.Flatten(), L.Dense(128, activation="relu")]
    else:  # 66 thousand parameters, 0.26 MB of gradient
        body = [
            L.Conv2D(32, 3, activation="relu"),
            L.Conv2D(64, 3, activation="relu"),
            L.MaxPooling2D(),
            L.Conv2D(64, 3, activation="relu"),
            L.GlobalAveragePooling2D(),
            L.Dense(128, activation="relu"),
        ]
    model = keras.Sequential([keras.Input((28, 28)), L.Reshape((28, 28, 1)), *body, L.Dense(10)])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(0.001),
        metrics=["accuracy"],
    )
    return model


class StepClock(keras.callbacks.Callback):
    def __init__(self, meet) -> None:
        super().__init__()
        self.meet = meet
        self.times: list[float] = []

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.meet()
        self.times.append(time.perf_counter())


def main() -> None:
    world = current_world()
    generator = np.random.default_rng(0)
    x, y = generator.random((6400, 28, 28), dtype=np.float32), generator.integers(0, 10, 6400)
    alone = VARIANT == "barrier"
    rows = BATCH if alone else BATCH * world.size
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(6400, seed=1).repeat().batch(rows).prefetch(2)
    if alone:  # the same input settings that Paceline chooses for a rank with one core
        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = 1
        data = data.with_options(options)
    model = build()
    clock = StepClock(world.communicator.barrier if alone else lambda: None)
    with world.training_alone() if alone else contextlib.nullcontext():
        model.fit(data, epochs=1, steps_per_epoch=WARM_UP_STEPS, verbose=0)
        model.fit(data, epochs=1, steps_per_epoch=STEPS, verbose=0, callbacks=[clock])
    ended = time.perf_counter()
    steps = np.diff(clock.times)[5:] * 1e3
    result = {
        "step_ms": float(np.median(steps)),
        "gradient_bytes": sum(int(np.prod(v.shape)) * 4 for v in model.trainable_variables),
        "fit_returns_after_s": ended - clock.times[-1],
        "raw_all_reduce_ms": raw_all_reduce(world, model),
    }
    if world.rank == 0:
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))


def raw_all_reduce(world, model: keras.Model) -> float:
    """MPI's own all-reduce of as many bytes as the gradient, on one flat buffer."""
    from mpi4py import MPI

    world.communicator.barrier()
    sent = np.ones(sum(int(np.prod(v.shape)) for v in model.trainable_variables), np.float32)
    received = np.empty_like(sent)
    times = []
    for _ in range(60):
        MPI.COMM_WORLD.Barrier()
        begin = time.perf_counter()
        MPI.COMM_WORLD.Allreduce(sent, received)
        times.append(time.perf_counter() - begin)
    return float(np.median(times) * 1e3)


main()
