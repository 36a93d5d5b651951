"""Two workers, of which the second one shares its core with two other programs: a machine that is not yours alone.

paceline run --workers 2 unequal_workers.py                      both compute half of the rows; one waits
paceline run --workers 2 --shares auto unequal_workers.py        rows by speed
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import paceline

DATA = Path(__file__).parent / "data" / "mnist_10k.npz"

BURN = """
import os
parent = os.getppid()
while os.getppid() == parent:  # ends with its worker, however that ends
    for _ in range(100_000):
        pass
"""


@contextlib.contextmanager
def neighbours(count: int = 2) -> Iterator[None]:
    """Programs that only burn time, on the cores of this worker."""
    programs = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def build_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.001), loss, metrics=["accuracy"])
    return model


def main(epochs: int = 3, num_train: int = 4096) -> None:
    keras.utils.set_random_seed(1)
    with np.load(DATA) as digits:
        x, y = digits["x_train"][:num_train] / np.float32(255), digits["y_train"][:num_train]
    model = build_model()
    with neighbours() if paceline.rank() == 1 else contextlib.nullcontext():
        losses = model.fit(x, y, batch_size=128, epochs=epochs, verbose=2).history["loss"]
    if paceline.is_chief():
        print(f"losses {', '.join(f'{loss:.4f}' for loss in losses)}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
