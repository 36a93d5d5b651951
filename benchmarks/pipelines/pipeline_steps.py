"""``pipeline_steps.py STAGES SCHEDULE:MICRO_BATCHES...``: seconds of a step, and of each stage's own work in it.

``plain:M``: plain Keras's `fit` on the same batches, in one process. Rank 0 writes JSON to BENCH_RESULT.
"""

import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import paceline
from paceline.fit.pipelining.stage_walk import StageWalk

LAYERS, WIDTH, ROWS = 16, 512, 64  # rows of a micro-batch
STEPS, WARM_UP = 12, 3
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))


class Busy:
    """Seconds that this stage computes in a step."""

    seconds = 0.0


def counted(compute: Any) -> Any:
    """`StageWalk._compute`: a stage's operations one after the other; waiting for messages is outside of it."""

    def _compute(*arguments: Any) -> None:
        begin = time.perf_counter()
        compute(*arguments)
        Busy.seconds += time.perf_counter() - begin

    return _compute


StageWalk._compute = counted(StageWalk._compute)  # type: ignore[method-assign]


class Steps(keras.callbacks.Callback):
    """Notes the seconds of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []
        self.busy: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        Busy.seconds = 0.0
        self.begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.steps.append(time.perf_counter() - self.begin)
        self.busy.append(Busy.seconds)


def model_of(scope: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    with scope:
        layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
        model = keras.Sequential([keras.Input((WIDTH,)), *layers])
        model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def measured(model: keras.Model, micro_batches: int) -> Steps:
    rows = ROWS * micro_batches
    x = np.random.default_rng(0).normal(size=((STEPS + WARM_UP) * rows, WIDTH)).astype(np.float32)
    steps = Steps()
    model.fit(x, x / 2, batch_size=rows, shuffle=False, verbose=0, callbacks=[steps])
    return steps


stages = int(sys.argv[1])
models = {}
for variant in sys.argv[2:]:
    schedule, _, number = variant.partition(":")
    if schedule == "plain":
        models[variant] = model_of(contextlib.nullcontext())
    else:
        strategy = paceline.PipelineStrategy(stages=stages, micro_batches=int(number), schedule=schedule)
        models[variant] = model_of(strategy.scope())
found: dict[str, list[Any]] = {variant: [] for variant in models}
for _ in range(ROUNDS):  # variants take turns
    for variant, model in models.items():
        steps = measured(model, int(variant.partition(":")[2]))
        found[variant].append([statistics.median(values[WARM_UP:]) for values in (steps.steps, steps.busy)])
result = Path(os.environ["BENCH_RESULT"])
Path(f"{result}.{paceline.rank()}").write_text(json.dumps(found))
if paceline.rank() == 0:
    for stage in range(1, paceline.world_size()):
        give_up_at = time.monotonic() + 60
        while not Path(f"{result}.{stage}").exists() or not Path(f"{result}.{stage}").read_text():
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
    files = [Path(f"{result}.{stage}") for stage in range(paceline.world_size())]
    result.write_text(json.dumps([json.loads(file.read_text()) for file in files]))
