"""A second `fit`, `evaluate` or `predict` that goes on where the one before it has stopped: one function a case."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

CASES: dict[str, Callable[[], Any]] = {}


def run_case(name: str) -> Any:
    keras.utils.set_random_seed(3)
    return CASES[name]()


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


@case
def a_loaded_model_trains_on() -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(20, 3))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01, weight_decay=0.1), "mse")
    losses = model.fit(x, x.sum(1), batch_size=5, epochs=2, verbose=0).history["loss"]
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.keras")
        loaded = keras.models.load_model(Path(folder) / "model.keras")
    losses += loaded.fit(x, x.sum(1), batch_size=5, epochs=2, verbose=0).history["loss"]
    return {"losses": losses, "iterations": int(loaded.optimizer.iterations)}


@case
def one_generator_is_predicted_and_evaluated_from() -> dict[str, Any]:
    """The first number of each call, of five batches, each of which has its number in each row."""

    def numbered() -> Iterator[Any]:
        number = 0
        while True:
            yield np.full((4, 1), float(number)), np.zeros((4, 1))
            number += 1

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)])
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
    batches = numbered()
    predicted = [model.predict(batches, steps=5, verbose=0).ravel()[::4].tolist() for _ in range(3)]
    sums = [5 * model.evaluate(batches, steps=5, verbose=0)[1] for _ in range(3)]
    return {"predicted": predicted, "sums": sums, "next": float(next(batches)[0][0, 0])}
