"""A Transformer that reads digits row by row. Alone it is plain Keras; on several workers its layers are in two stages.

python examples/transformer.py                          one process
paceline run --workers 2 examples/transformer.py        a stage on each worker, the same numbers
paceline run --workers 4 examples/transformer.py        two replicas of each stage, the same numbers
"""

import argparse
import contextlib
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import paceline

DATA = Path(__file__).parent / "data" / "mnist_10k.npz"


class Positions(keras.layers.Layer):
    """Adds to each token what is learnt for its place."""

    def build(self, shape: tuple) -> None:
        self.places = self.add_weight(shape=shape[1:], initializer=keras.initializers.RandomNormal(0.02, seed=1))

    def call(self, x):
        return x + self.places


def build_model(blocks: int = 4, width: int = 64) -> keras.Model:
    inputs = keras.Input((28, 28))  # 28 tokens: the rows of the image
    x = Positions()(keras.layers.Dense(width)(inputs))
    for _ in range(blocks):
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.MultiHeadAttention(num_heads=4, key_dim=width // 4)(y, y)
        x = keras.layers.Add()([x, keras.layers.Dropout(0.1)(y)])
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(width)(keras.layers.Dense(4 * width, activation="gelu")(y))
        x = keras.layers.Add()([x, keras.layers.Dropout(0.1)(y)])
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(x))
    model = keras.Model(inputs, keras.layers.Dense(10)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.001), loss, metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--num-train", type=int, default=8000, help="train on the first so many digits")
    parser.add_argument("--floatx", choices=["float32", "float64"], default="float32")
    options = parser.parse_args()
    keras.config.set_floatx(options.floatx)
    keras.utils.set_random_seed(1)
    with np.load(DATA) as digits:
        x, y = digits["x_train"][: options.num_train] / np.float32(255), digits["y_train"][: options.num_train]
        test = digits["x_test"] / np.float32(255), digits["y_test"]

    scope = contextlib.nullcontext()
    if paceline.world_size() > 1:
        scope = paceline.PipelineStrategy(stages=2, micro_batches=8, balance="auto").scope()
    with scope:
        model = build_model()
    begin = time.perf_counter()
    history = model.fit(x, y, batch_size=128, epochs=options.epochs, verbose=0).history
    seconds = time.perf_counter() - begin
    loss, accuracy = model.evaluate(*test, batch_size=500, verbose=0)
    if paceline.rank() == 0:
        print(f"training losses {', '.join(f'{loss:.10f}' for loss in history['loss'])}")
        print(f"test loss {loss:.10f}, accuracy {accuracy:.4f}, {seconds:.0f} s")


if __name__ == "__main__":
    main()
