"""The model and data that the cases share, and how a case tells the test what it has seen."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

RANK = int(os.environ.get("PACELINE_RANK", "0"))
NUM_WORKERS = int(os.environ.get("PACELINE_WORLD_SIZE", "1"))
ROWS = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
TARGETS = ROWS.sum(1, keepdims=True)

Case = Callable[[Path], Any]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Runs with a directory of its own, the same on all ranks; what it returns is told to the test as JSON."""
    CASES[function.__name__] = function
    return function


def model_and_compile() -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, "relu"),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError(), metrics=["mae"])
    return model


_shared: list[tuple[keras.Model, list[np.ndarray]]] = []


def shared_model() -> keras.Model:
    """What `model_and_compile` makes, as new: the cases share one, because its steps take longest to trace."""
    if not _shared:
        model = model_and_compile()
        model.optimizer.build(model.trainable_variables)
        _shared.append((model, [np.array(value) for value in _state(model)]))
    model, values = _shared[0]
    for variable, value in zip(_state(model), values, strict=True):
        variable.assign(value)
    return model


def _state(model: keras.Model) -> list[keras.Variable]:
    return [*model.weights, *model.optimizer.variables]


def fit(model: keras.Model, epochs: int = 1, **options: Any) -> dict[str, list[float]]:
    return model.fit(ROWS, TARGETS, batch_size=10, epochs=epochs, verbose=0, shuffle=False, **options).history


def trained() -> keras.Model:
    """As after one epoch."""
    model = shared_model()
    fit(model)
    return model


def flat(model: keras.Model) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in model.get_weights()])


def error_of(action: Callable[[], Any]) -> str:
    """The error's class and text; empty when there was none."""
    try:
        action()
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"
    return ""


def files_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
