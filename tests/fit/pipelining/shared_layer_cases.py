"""Models with layers in common, and layers with weights in common, in two stages beside plain Keras."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import paceline

layers = keras.layers

_random = np.random.default_rng(0)
NOISE, ROWS, ONES = _random.normal(size=(8, 3)), _random.normal(size=(8, 5)), np.ones((8, 1))


def _check(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def _of_models(scope: Any, path: Path) -> list[Any]:
    """What a generator, a discriminator, both together and a part of the discriminator make in turns."""
    keras.utils.set_random_seed(5)
    with scope:
        generator = keras.Sequential([keras.Input((3,)), layers.Dense(6, "tanh"), layers.Dense(5)])
        x = keras.Input((5,))
        middle = layers.Dense(4, "tanh")(layers.Dense(6, "tanh")(x))
        discriminator = keras.Model(x, layers.Dense(1)(middle))
        features = keras.Model(x, middle)
        both = keras.Sequential([keras.Input((3,)), generator, discriminator])
        discriminator.compile(keras.optimizers.Adam(0.02), "mse")
        both.compile(keras.optimizers.Adam(0.02), "mse")
    found: list[Any] = []
    for _ in range(2):
        found += [discriminator.train_on_batch(ROWS, ONES), both.train_on_batch(NOISE, ONES)]
    found.append(features.predict(ROWS, verbose=0))

    def show(*_: Any) -> None:
        found.extend([generator.predict(NOISE, verbose=0), features.predict(ROWS, verbose=0)])

    shown = keras.callbacks.LambdaCallback(on_epoch_end=show)
    options = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0}
    found.append(both.fit(NOISE, ONES, callbacks=[shown], **options).history["loss"])
    discriminator.save(path)
    found.append(keras.models.load_model(path, compile=False).predict(ROWS, verbose=0))
    return found


def two_models(strategy: Any, folder: Path) -> None:
    """A GAN, and a model of features that is asked in the middle of a `fit`: each is cut elsewhere."""
    own = _of_models(strategy.scope(), folder / "stages.keras")
    plain = _of_models(contextlib.nullcontext(), folder / f"plain-{paceline.rank()}.keras")
    for one, other in zip(own, plain, strict=True):
        _check(one, other)


CASES: dict[str, Callable[[Any, Path], None]] = {case.__name__: case for case in (two_models,)}


def run_case(name: str, folder: str) -> None:
    """Runs one of `CASES` on every rank."""
    keras.config.set_floatx("float64")
    CASES[name](paceline.PipelineStrategy(2, micro_batches=2), Path(folder))
