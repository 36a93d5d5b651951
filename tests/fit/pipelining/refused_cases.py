"""Scripts that two stages refuse, and what every rank is told."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import paceline

X, Y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)


def _told(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """What a call raises."""
    try:
        call(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _dense() -> Any:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])


def made_outside_of_the_scope(strategy: Any) -> list[str]:
    """`compile` in the scope is not enough: variables are made where the model is."""
    model = _dense()
    with strategy.scope():
        model.compile("sgd", "mse")
    assert np.isfinite(model.evaluate(X, Y, verbose=0)), "nothing is trained here"
    return [_told(model.fit, X, Y, verbose=0), _told(model.train_on_batch, X, Y)]


CASES = {case.__name__: case for case in (made_outside_of_the_scope,)}


def run_case(name: str) -> Any:
    """Runs one of `CASES` on every rank."""
    return CASES[name](paceline.PipelineStrategy(2, micro_batches=2))
