"""Data that lack a batch, or all: one function a case, each run by every rank of a world."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

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
    items = (DrawingTable if kind == "drawing" else Table)(workers=2)
    return error_of(lambda: getattr(model_of(), method)(items, verbose=0))
