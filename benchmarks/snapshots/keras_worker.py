"""The MNIST CNN with Adam (33 MB of state); each snapshot is followed by as many steps again without one.

    step 40 ── snapshot ── steps 41 to 60 (with) ── steps 61 to 80 (without) ── snapshot ── ...

paceline run --workers 2 --no-drop-in keras_worker.py SNAPSHOTS DIRECTORY
"""

import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import paceline.callbacks
from paceline.comm.world import current_world

SNAPSHOTS, DIRECTORY = int(sys.argv[1]), sys.argv[2]
BATCH, WINDOW = 64, 20
L = keras.layers


def build() -> keras.Model:
    body = [L.Conv2D(32, 3, activation="relu"), L.Flatten(), L.Dense(128, activation="relu")]
    model = keras.Sequential([keras.Input((28, 28)), L.Reshape((28, 28, 1)), *body, L.Dense(10)])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(0.001),
        metrics=["accuracy"],
    )
    return model


BEGAN: list[float] = []
ENDED: list[float] = []
"""Not in the callback: what that holds is a part of each snapshot."""


class Clock(keras.callbacks.Callback):
    """When each step begins and ends: between the end of one and the begin of the next, snapshots are taken."""

    same_on_all_ranks = True  # it decides nothing

    def on_train_batch_begin(self, batch, logs=None) -> None:
        BEGAN.append(time.perf_counter())

    def on_train_batch_end(self, batch, logs=None) -> None:
        ENDED.append(time.perf_counter())


def main() -> None:
    strategy = paceline.MultiWorkerMirroredStrategy()
    world = current_world()
    with strategy.scope():
        model = build()
    generator = np.random.default_rng(0)
    x, y = generator.random((6400, 28, 28), dtype=np.float32), generator.integers(0, 10, 6400)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH * world.size).prefetch(2)

    def fit(steps: int) -> None:
        BEGAN.clear()
        ENDED.clear()
        snapshot = paceline.callbacks.Snapshot(DIRECTORY, every_steps=2 * WINDOW)
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[snapshot, Clock()])

    fit(2 * WINDOW * 2)
    fit(2 * WINDOW * SNAPSHOTS + WINDOW * 2)
    first = int(model.optimizer.iterations.numpy()) - len(ENDED)  # steps before this fit
    ends, pauses_ms = np.array(ENDED), 1e3 * (np.array(BEGAN[1:]) - np.array(ENDED[:-1]))
    due = [at for at in range(len(pauses_ms)) if (first + at + 1) % (2 * WINDOW) == 0]
    pairs = [at for at in due if at + 2 * WINDOW < len(ends)]
    usual_ms = float(np.median(np.delete(pauses_ms, due)))
    result = {
        "with_s": [float(ends[at + WINDOW] - ends[at]) for at in pairs],
        "without_s": [float(ends[at + 2 * WINDOW] - ends[at + WINDOW]) for at in pairs],
        "waits_ms": [float(pauses_ms[at]) - usual_ms for at in due],
        "steps": WINDOW,
        **copies_ms(model),
    }
    if world.rank == 0:
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))


def copies_ms(model: keras.Model) -> dict[str, float]:
    """Copying as many bytes as a snapshot has, variable by variable: into memory that is there, and into new memory."""
    sources = [np.array(variable) for variable in model.optimizer.variables]
    sources += [np.array(variable) for variable in model.variables]
    kept = [np.empty_like(source) for source in sources]
    into_kept, into_new = [], []
    for _ in range(30):
        begin = time.perf_counter()
        for target, source in zip(kept, sources, strict=True):
            np.copyto(target, source)
        into_kept.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        new = [np.empty_like(source) for source in sources]
        for target, source in zip(new, sources, strict=True):
            np.copyto(target, source)
        into_new.append(time.perf_counter() - begin)
        del new, target
    return {
        "copy_ms": float(np.median(into_kept) * 1e3),
        "copy_into_new_ms": float(np.median(into_new) * 1e3),
        "snapshot_bytes": sum(source.nbytes for source in sources),
    }


main()
