"""A first script: a small network that reads digits, in plain Keras. Nothing here knows of Paceline.

python first_script.py alone.txt                        one process; its numbers go into the file alone.txt
paceline run --workers 2 first_script.py two.txt        two workers
"""

import hashlib
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

DATA = Path(__file__).parent / "data" / "mnist_10k.npz"


def build_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.002), loss, metrics=["accuracy"])
    return model


def main(result: str) -> None:
    keras.utils.set_random_seed(1)
    with np.load(DATA) as digits:
        x, y = digits["x_train"][:4096] / np.float32(255), digits["y_train"][:4096]
        x_test, y_test = digits["x_test"] / np.float32(255), digits["y_test"]
    model = build_model()
    model.fit(x, y, batch_size=128, epochs=3, verbose=2)
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=500, verbose=0)
    weights = b"".join(weight.tobytes() for weight in model.get_weights())
    lines = [
        f"test loss      {loss:.9f}",
        f"test accuracy  {accuracy:.4f}",
        f"weights        sha256 {hashlib.sha256(weights).hexdigest()[:16]}",
    ]
    # Each worker comes here, with the same numbers: the file is the same, whoever writes it last.
    Path(result).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
