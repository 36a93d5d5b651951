"""One job of the benchmark: fits of one model in turns, without the step clock, with it, and with its records.

`paceline run --observe FOLDER worker.py cnn|dense STEPS ROUNDS`. The milliseconds of the steps go to the file
BENCH_RESULT, by variant a list of medians.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import keras
import numpy as np

from paceline.comm.step_clock import Phase, StepClock
from paceline.comm.world import current_world

L = keras.layers
BATCH = {"cnn": 128, "dense": 64}


class Steps(keras.callbacks.Callback):
    """When each step has ended."""

    same_on_all_ranks = True

    def on_train_begin(self, logs=None) -> None:
        self.seconds: list[float] = []
        self.last = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now


def model_of(name: str) -> tuple[keras.Model, tuple[int, ...]]:
    if name == "dense":  # whose gradients are small: 6,000 weights
        return keras.Sequential(
            [keras.Input((64,)), *[L.Dense(32, activation="relu") for _ in range(4)], L.Dense(10)]
        ), (64,)
    layers = [L.Conv2D(32, 3, activation="relu"), L.Flatten(), L.Dense(128, activation="relu"), L.Dense(10)]
    return keras.Sequential([keras.Input((28, 28, 1)), *layers]), (28, 28, 1)


switch = StepClock.switch


def stands(clock: StepClock, phase: Phase) -> Phase:
    """In place of `StepClock.switch`: the clock is read by nobody, and no phase begins."""
    del phase
    return clock._phase


def main() -> None:
    name, steps, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    keras.utils.set_random_seed(1)
    model, shape = model_of(name)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    generator = np.random.default_rng(0)
    rows = BATCH[name] * steps
    x, y = generator.random((rows, *shape), dtype=np.float32), generator.integers(0, 10, rows)
    clock = current_world().clock
    note = clock.note
    assert note is not None, "the records of --observe are not kept"
    timed = Steps()
    found: dict[str, list[float]] = {"off": [], "on": [], "observe": []}
    for round_ in range(rounds + 1):
        order = list(found) if round_ % 2 else list(found)[::-1]
        for variant in order:
            StepClock.switch = stands if variant == "off" else switch
            clock.note = note if variant == "observe" else None
            model.fit(x, y, batch_size=BATCH[name], verbose=0, callbacks=[timed])
            if round_:  # the first one traces
                found[variant].append(1e3 * statistics.median(timed.seconds[2:]))
    if os.environ["PACELINE_RANK"] == "0":
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
