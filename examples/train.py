"""The tutorials' MNIST CNN, in plain Keras. Nothing here knows of Paceline.

python examples/train.py                                one worker
paceline run --workers 2 examples/train.py              two workers, the same numbers
"""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parent / "data" / "mnist_10k.npz"


class EpochSeconds(keras.callbacks.Callback):
    """How long each epoch took, its validation included."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._begin = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.seconds.append(time.perf_counter() - self._begin)


def datasets(batch_size: int, num_train: int) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Training and test digits; `batch_size` counts the rows of one step over all workers."""
    with np.load(DATA) as digits:
        x_train, y_train = digits["x_train"][:num_train] / np.float32(255), digits["y_train"][:num_train]
        x_test, y_test = digits["x_test"] / np.float32(255), digits["y_test"]
    train = tf.data.Dataset.from_tensor_slices((x_train, y_train.astype("int64")))
    test = tf.data.Dataset.from_tensor_slices((x_test, y_test.astype("int64")))
    # tf.data's tuning thread makes a process that is bound to a few cores wait for seconds at the end of an epoch.
    options = tf.data.Options()
    options.autotune.enabled = False
    return train.shuffle(len(x_train)).batch(batch_size).with_options(options), test.batch(500).with_options(options)


def build_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(0.0005),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128, help="rows of one step over all workers")
    parser.add_argument("--num-train", type=int, default=8000, help="train on the first so many digits")
    parser.add_argument("--floatx", choices=["float32", "float64"], default="float32")
    parser.add_argument("--result", type=Path, help="folder; each process writes weights and figures into a file there")
    options = parser.parse_args()

    keras.config.set_floatx(options.floatx)
    keras.utils.set_random_seed(1)
    train, test = datasets(options.batch_size, options.num_train)
    model = build_model()
    timer = EpochSeconds()
    # shuffle=False: the dataset shuffles itself.
    history = model.fit(train, epochs=options.epochs, validation_data=test, shuffle=False, callbacks=[timer]).history
    seconds = np.median(timer.seconds[1:] or timer.seconds)  # the first epoch also traces the graph
    print(f"{seconds:.2f} s per epoch, test accuracy {history['val_accuracy'][-1]:.4f}")
    if options.result is not None:
        np.savez(options.result / f"{os.getpid()}.npz", *model.get_weights(), epoch_seconds=timer.seconds, **history)


if __name__ == "__main__":
    main()
