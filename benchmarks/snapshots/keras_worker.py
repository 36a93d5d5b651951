"""The MNIST CNN with Adam (33 MB of state), in fits with and without snapshots that take turns in the same processes.

paceline run --workers 2 --no-drop-in keras_worker.py BLOCKS EPOCHS STEPS DIRECTORY
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

BLOCKS, EPOCHS, STEPS = map(int, sys.argv[1:4])
DIRECTORY = sys.argv[4]
BATCH, EVERY_STEPS = 64, 100
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


class Clock(keras.callbacks.Callback):
    """When epochs begin, and how long it is from the end of a step to the next one: there snapshots are taken."""

    same_on_all_ranks = True  # it decides nothing

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[float] = []
        self.pauses_ms: dict[int, float] = {}
        self.ended_at: float | None = None

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self.epochs.append(time.perf_counter())
        self.ended_at = None

    def on_train_batch_begin(self, batch, logs=None) -> None:
        if self.ended_at is not None:
            step = int(self.model.optimizer.iterations.numpy())
            self.pauses_ms[step] = (time.perf_counter() - self.ended_at) * 1e3

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.ended_at = time.perf_counter()


def main() -> None:
    strategy = paceline.MultiWorkerMirroredStrategy()
    world = current_world()
    with strategy.scope():
        model = build()
    generator = np.random.default_rng(0)
    x, y = generator.random((6400, 28, 28), dtype=np.float32), generator.integers(0, 10, 6400)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH * world.size).prefetch(2)

    def fit(epochs: int, steps: int, *, takes_snapshots: bool) -> Clock:
        clock = Clock()
        snapshot = paceline.callbacks.Snapshot(DIRECTORY, every_steps=EVERY_STEPS)
        callbacks = [*([snapshot] if takes_snapshots else []), clock]
        model.fit(data, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
        return clock

    fit(1, 30, takes_snapshots=False)
    # So that no snapshot falls on the end of an epoch: it would be written in the next, perhaps the other variant's.
    fit(1, EVERY_STEPS // 2, takes_snapshots=True)
    epochs_s: dict[str, list[float]] = {"without": [], "with": []}
    waits_ms = []
    for _ in range(BLOCKS):
        for name, epochs in epochs_s.items():
            clock = fit(EPOCHS + 1, STEPS, takes_snapshots=name == "with")
            epochs += [float(seconds) for seconds in np.diff(clock.epochs)]
            if name == "with":
                due = [step for step in clock.pauses_ms if step % EVERY_STEPS == 0]
                usual = float(np.median([ms for step, ms in clock.pauses_ms.items() if step not in due]))
                waits_ms += [clock.pauses_ms[step] - usual for step in due]
    result = {"epochs_s": epochs_s, "waits_ms": waits_ms, **copies_ms(model)}
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
