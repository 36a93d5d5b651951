"""Training in a notebook, in this process. Its twin on two workers is notebook_function.py."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

DATA = Path(__file__).parent / "data" / "mnist_10k.npz"


def train(epochs: int, num_train: int) -> dict[str, list[float]]:
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    with np.load(DATA) as digits:
        x_train, y_train = digits["x_train"][:num_train] / np.float32(255), digits["y_train"][:num_train]
    model = keras.Sequential([keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model.fit(x_train, y_train, batch_size=128, epochs=epochs, verbose=0).history


def main(epochs: int = 3, num_train: int = 8000) -> None:
    histories = [train(epochs, num_train)]
    for rank, history in enumerate(histories):
        print(f"rank {rank}: loss {history['loss'][-1]:.5f}, accuracy {history['accuracy'][-1]:.4f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
