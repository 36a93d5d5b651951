"""One job of the benchmark: some epochs of a model. The median step goes to the file BENCH_RESULT.

python worker.py transformer|resnet|small_layers [CORES]      (also under `paceline run`)
"""

import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np

L = keras.layers
BATCH, STEPS, EPOCHS = 64, 25, 4
TRANSFORMER = Path(__file__).parents[2] / "examples"


class Steps(keras.callbacks.Callback):
    """When each step has ended; the first epoch is not counted, as it traces."""

    same_on_all_ranks = True

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self.counts, self.last = epoch > 0, None

    def on_train_batch_end(self, batch, logs=None) -> None:
        now = time.perf_counter()
        if self.counts and self.last is not None:
            self.seconds.append(now - self.last)
        self.last = now


def resnet() -> tuple[keras.Model, tuple[int, ...]]:
    """Nine convolutions with BatchNormalization and skips, as in ResNets for CIFAR."""
    inputs = x = keras.Input((32, 32, 3))
    x = L.Conv2D(16, 3, padding="same", use_bias=False)(x)
    for filters, strides in ((16, 1), (32, 2), (64, 2)):
        y = L.ReLU()(L.BatchNormalization()(x))
        skip = x if strides == 1 else L.Conv2D(filters, 1, strides=strides, use_bias=False)(y)
        y = L.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(y)
        y = L.Conv2D(filters, 3, padding="same", use_bias=False)(L.ReLU()(L.BatchNormalization()(y)))
        x = L.Add()([skip, y])
    x = L.GlobalAveragePooling2D()(L.ReLU()(L.BatchNormalization()(x)))
    return keras.Model(inputs, L.Dense(10)(x)), (32, 32, 3)


def small_layers() -> tuple[keras.Model, tuple[int, ...]]:
    """Forty layers of which each computes next to nothing: what a step costs beside its computation."""
    return keras.Sequential([keras.Input((32,)), *[L.Dense(32, activation="relu") for _ in range(40)], L.Dense(10)]), (
        32,
    )


def transformer() -> tuple[keras.Model, tuple[int, ...]]:
    """The one of the examples: four blocks of width 64 over 28 tokens."""
    sys.path.insert(0, str(TRANSFORMER))
    from transformer import build_model

    return build_model(), (28, 28)


def main() -> None:
    name, cores = sys.argv[1], sys.argv[2:]
    if cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores[0])])
    keras.utils.set_random_seed(1)
    model, shape = {"transformer": transformer, "resnet": resnet, "small_layers": small_layers}[name]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.001), loss, metrics=["accuracy"])
    generator = np.random.default_rng(0)
    x = generator.random((BATCH * STEPS, *shape), dtype=np.float32)
    y = generator.integers(0, 10, len(x))
    steps = Steps()
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[steps])
    if os.environ.get("PACELINE_RANK", "0") == "0":
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps({"step_ms": 1e3 * float(np.median(steps.seconds))}))


if __name__ == "__main__":
    main()
