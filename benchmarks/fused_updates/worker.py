"""Steps of the demo's model on this rank, in turns: as Paceline trains it, with TensorFlow's operations for the update,
and without sending gradients. Or, without the launcher, as plain Keras trains it; as one worker: with one loop.

paceline run --workers 2 worker.py Adam | paceline run --workers 1 worker.py Adam | python worker.py Adam
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

BATCH, STEPS, BLOCKS = 128, 40, 6
OPTIMIZER = sys.argv[1]
L = keras.layers


class Clock(keras.callbacks.Callback):
    """When each step has ended."""

    same_on_all_ranks = True

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.times.append(time.perf_counter())


def build() -> keras.Model:
    """2.8 million parameters, 11 MB."""
    body = [L.Conv2D(32, 3, activation="relu"), L.Flatten(), L.Dense(128, activation="relu"), L.Dense(10)]
    model = keras.Sequential([keras.Input((28, 28)), L.Reshape((28, 28, 1)), *body])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(getattr(keras.optimizers, OPTIMIZER)(0.001), loss, metrics=["accuracy"])
    return model


def data() -> tf.data.Dataset:
    generator = np.random.default_rng(0)
    x, y = generator.random((6400, 28, 28), dtype=np.float32), generator.integers(0, 10, 6400)
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH).with_options(options)


def step_ms(model: keras.Model) -> float:
    clock = Clock()
    model.fit(data(), epochs=1, steps_per_epoch=STEPS, verbose=0, callbacks=[clock])
    return float(np.median(np.diff(clock.times)[5:]) * 1e3)


def models_of_this_rank() -> dict[str, keras.Model]:
    """The variants, each traced."""
    if os.environ.get("PACELINE_WORLD_SIZE", "1") == "1":
        model = build()
        step_ms(model)
        return {"one worker" if "PACELINE_RANK" in os.environ else "plain": model}
    import paceline
    from paceline.fit import divided_steps
    from paceline.strategy.step_messages import StepMessages

    models: dict[str, keras.Model] = {}
    fused, total = divided_steps.fused_updates, StepMessages.sum
    strategy = paceline.MultiWorkerMirroredStrategy()
    for name in ("one loop", "operations", "one loop, nothing sent"):
        divided_steps.fused_updates = (lambda **_: None) if name == "operations" else fused
        StepMessages.sum = (lambda self, addends: list(addends)) if name.endswith("sent") else total
        with strategy.scope():
            models[name] = build()
        begin = time.perf_counter()
        step_ms(models[name])
        print(f"{name}: {time.perf_counter() - begin:.2f} s for the start and {STEPS} steps", flush=True)
    return models


def main() -> None:
    models = models_of_this_rank()
    result: dict[str, Any] = {name: [] for name in models}
    for _ in range(BLOCKS):
        for name, model in models.items():
            result[name].append(step_ms(model))
    result["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if os.environ.get("PACELINE_RANK", "0") == "0":
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))


main()
