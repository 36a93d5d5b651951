"""A second `fit`, `evaluate` or `predict` that goes on where the one before it has stopped: one function a case."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

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


@case
def repeated_shuffles_are_read_by_several_calls() -> dict[str, list[int]]:
    """By pipeline, which order of the shuffle the script finds behind a `fit` of so many steps; 10 are a repetition."""
    orders = [_first_rows(shuffled) for shuffled in [_shuffled()] for _ in range(8)]
    found: dict[str, list[int]] = {}
    for name, (steps, again) in _REPEATED.items():
        found[name] = []
        for number in steps:
            data = again(_shuffled())
            _linear().fit(data, steps_per_epoch=number, verbose=0)
            found[name].append(_nearest(orders, _first_rows(data.unbatch())))
    data, model = _REPEATED["AUTOTUNE"][1](_shuffled()), _linear()
    _first_rows(data.unbatch())  # draws one seed
    model.fit(data, epochs=3, steps_per_epoch=9, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.keras")
        model = keras.models.load_model(Path(folder) / "model.keras")
    model.evaluate(data, steps=11, verbose=0)
    model.predict(data.map(lambda x, _: x), steps=3, verbose=0)
    found["several calls"] = [_nearest(orders, _first_rows(data.unbatch()))]
    return found


_REPEATED: dict[str, tuple[list[int], Callable[[Any], Any]]] = {
    "AUTOTUNE": ([1, 6, 7, 8, 9, 10, 29, 30], lambda rows: rows.repeat().batch(10).prefetch(tf.data.AUTOTUNE)),
    "none": ([6, 10], lambda rows: rows.repeat().batch(10)),
    "two": ([7, 8, 9, 10], lambda rows: rows.repeat().batch(10).prefetch(2)),
    "repeated batches": ([6, 10], lambda rows: rows.batch(10).repeat().map(lambda x, y: (x + 0.0, y)).prefetch(1)),
    "mapped": ([6, 9, 16], lambda rows: rows.map(lambda x, y: (x + 0.0, y)).repeat().batch(10).prefetch(1)),
    "finite": ([8, 10], lambda rows: rows.repeat(3).batch(10).prefetch(1)),
    "shuffled again": ([1, 9], lambda rows: rows.repeat().shuffle(5, seed=4).batch(10).prefetch(1)),
}


@case
def finite_repeats_are_read_to_their_ends() -> dict[str, list[list[float]]]:
    """By pipeline, rows in their order: those of three epochs, and then the script's first ones."""
    found: dict[str, list[list[float]]] = {}
    for name, again in _READ_TO_THEIR_ENDS.items():
        data, model = again(_shuffled()), _linear()
        ends = [len(list(again(_shuffled())))]
        rows: list[float] = []
        keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs, rows=rows: rows.append(logs["loss"]))
        model.fit(data, epochs=3, verbose=0, callbacks=[keep])
        assert len(rows) == 3 * ends[0]
        first = [float(x[0]) for x, _ in data.unbatch().take(10).as_numpy_iterator()]
        found[name] = [[round(loss, 3) for loss in rows], first]
    return found


_READ_TO_THEIR_ENDS: dict[str, Callable[[Any], Any]] = {
    "mapped": lambda rows: rows.map(lambda x, y: (x + 1.0, y)).repeat(2).batch(30),
    "ends with a batch": lambda rows: rows.map(lambda x, y: (x + 1.0, y)).repeat(2).batch(20),
    "chosen": lambda rows: rows.take(90).repeat(3).batch(40).prefetch(tf.data.AUTOTUNE),
    "one stage": lambda rows: rows.repeat(2).batch(30),
    "one stage over a shuffle": lambda rows: rows.shuffle(20).repeat(2).batch(30),
    "repeated twice": lambda rows: rows.skip(1).repeat(2).repeat(2).batch(30),
    "shuffled again": lambda rows: rows.map(lambda x, y: (x + 1.0, y)).repeat(2).shuffle(50).batch(30),
    "cached below": lambda rows: rows.cache().shuffle(100).skip(1).repeat(2).batch(30),
}


def _shuffled() -> Any:
    tf.random.set_seed(7)
    rows = np.arange(100.0)[:, None]
    return tf.data.Dataset.from_tensor_slices((rows, rows)).shuffle(2000)


def _first_rows(data: Any) -> set[float]:
    return {float(x[0]) for x, _ in data.take(10).as_numpy_iterator()}


def _nearest(orders: list[set[float]], rows: set[float]) -> int:
    return max(range(len(orders)), key=lambda number: len(orders[number] & rows))


def _linear() -> Any:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-9), "mse")
    return model
