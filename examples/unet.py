"""A U-Net that cleans noisy digits. Alone it is plain Keras; on several workers its layers are in two stages.

    python examples/unet.py                          one process
    paceline run --workers 2 examples/unet.py        a stage on each worker, the same numbers

The skips from the way down to the way up go over the cut. The way up costs more: balance="auto" measures by how much.
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


def convolved(x, filters: int):
    return keras.layers.ReLU()(keras.layers.Conv2D(filters, 3, padding="same")(x))


def build_model(filters: int = 12) -> keras.Model:
    inputs = keras.Input((28, 28, 1))
    x, skips = inputs, []
    for _ in range(2):  # 28 x 28, then 14 x 14
        x = convolved(x, filters)
        skips.append(x)
        x = keras.layers.MaxPooling2D()(x)
    x = convolved(x, filters)
    while skips:
        x = keras.layers.Concatenate()([keras.layers.UpSampling2D()(x), skips.pop()])
        x = convolved(convolved(x, 2 * filters), 2 * filters)
    model = keras.Model(inputs, keras.layers.Conv2D(1, 3, padding="same")(x))
    model.compile(keras.optimizers.Adam(0.002), "mse", metrics=["mae"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--num-train", type=int, default=4000, help="train on the first so many digits")
    parser.add_argument("--floatx", choices=["float32", "float64"], default="float32")
    options = parser.parse_args()
    keras.config.set_floatx(options.floatx)
    keras.utils.set_random_seed(1)
    noise = np.random.default_rng(1)
    with np.load(DATA) as digits:
        clean = digits["x_train"][: options.num_train, ..., None] / np.float32(255)
        test = digits["x_test"][..., None] / np.float32(255)
    noisy, noisy_test = (one + noise.normal(0, 0.5, one.shape).astype(np.float32) for one in (clean, test))

    scope = contextlib.nullcontext()
    if paceline.world_size() > 1:
        scope = paceline.PipelineStrategy(stages=2, micro_batches=8, balance="auto").scope()
    with scope:
        model = build_model()
    begin = time.perf_counter()
    history = model.fit(noisy, clean, batch_size=128, epochs=options.epochs, verbose=0).history
    seconds = time.perf_counter() - begin
    loss, error = model.evaluate(noisy_test, test, batch_size=500, verbose=0)
    if paceline.rank() == 0:
        print(f"training losses {', '.join(f'{loss:.10f}' for loss in history['loss'])}")
        before = np.abs(noisy_test - test).mean()
        print(f"test loss {loss:.10f}, mean error {error:.4f} instead of {before:.4f}, {seconds:.0f} s")


if __name__ == "__main__":
    main()
