"""Data that lack a batch, or all: one function a case, each run by every rank of a world."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import paceline.data
from paceline.comm.world import current_world

CASES: dict[str, Callable[..., Any]] = {}


def run_case(name: str, *arguments: str) -> Any:
    keras.utils.set_random_seed(3)
    return CASES[name](*arguments)


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES[function.__name__] = function
    return function


def model_of() -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


class Table(keras.utils.PyDataset):
    """Its sixth item is missing."""

    draws = False

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if self.draws:
            np.random.rand()
        return None if index == 5 else (np.ones((4, 3)), np.ones(4))


class DrawingTable(Table):
    draws = True


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return str(error)
    return "none"


@case
def a_missing_item(method: str, kind: str) -> str:
    items = (DrawingTable if kind == "drawing" else Table)(workers=1 if kind == "one worker" else 2)
    return error_of(lambda: getattr(model_of(), method)(items, verbose=0))


@case
def no_batch() -> Any:
    rows = tf.data.Dataset.from_tensor_slices((np.ones((8, 3), "float32"), np.ones((8, 1), "float32")))
    empty = rows.filter(lambda *_: False).batch(4)
    model, said = model_of(), []
    for call in (lambda: model.fit(empty, verbose=0), lambda: model.evaluate(rows.batch(4).take(0), verbose=0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        said += [str(one.message) for one in caught if "no-data" in str(one.message)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows.batch(4).filter(lambda *_: True), verbose=0)
        keras.config.set_max_steps_per_epoch(8)  # Keras asks for no second batch, and warns in the same way
        model.fit(rows.batch(8), verbose=0)
        keras.config.set_max_steps_per_epoch(None)
    assert not any("no-data" in str(one.message) for one in caught), "there were two batches, and one"
    return [*said, error_of(lambda: model.predict(empty.map(lambda x, _: x), verbose=0))]


class Scaled(keras.Model):
    """Its targets have a scale for all rows of a batch, so no batch is without rows to the end of a longer rank."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        x, y, scale = data
        return super().train_step((x, y * scale))

    def test_step(self, data: Any) -> Any:
        x, y, scale = data
        return super().test_step((x, y * scale))


@case
def ends_within_the_first_execution(method: str) -> Any:
    """The rank's own batches are one, or six; all ranks end behind the steps of the shortest."""
    rank = current_world().data.rank
    rows = tf.data.Dataset.from_tensor_slices((np.ones((8, 3), "float32"), np.ones((8, 1), "float32")))
    data = rows.repeat(1 if rank == 0 else 6).filter(lambda *_: True).batch(8).map(lambda x, y: (x, y, 2.0))
    model = Scaled()
    model.compile("sgd", "mse", steps_per_execution=4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(model, method)(paceline.data.shard(data, "off"), verbose=0)
    said = [str(one.message) for one in caught if "no-data" in str(one.message)]
    return [int(model.optimizer.iterations), said]
