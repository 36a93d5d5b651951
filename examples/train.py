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
        optimizer=keras.optimizers.SGD(0.1),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128, help="rows of one step over all workers")
    parser.add_argument("--result", type=Path, help="file (.npz) for the final weights and figures")
    options = parser.parse_args()

    keras.utils.set_random_seed(1)
    with np.load(DATA) as digits:
        x_train, y_train = digits["x_train"] / np.float32(255), digits["y_train"].astype("int64")
        x_test, y_test = digits["x_test"] / np.float32(255), digits["y_test"].astype("int64")
    train = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(len(x_train)).batch(options.batch_size)
    test = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(500)

    model = build_model()
    begin = time.perf_counter()
    history = model.fit(train, epochs=options.epochs, validation_data=test)
    seconds = time.perf_counter() - begin
    print(f"{seconds / options.epochs:.1f} s per epoch, test accuracy {history.history['val_accuracy'][-1]:.4f}")
    if options.result is not None:
        np.savez(options.result, *model.get_weights(), seconds=seconds, **history.history)


if __name__ == "__main__":
    main()
