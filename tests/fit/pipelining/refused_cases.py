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


class Fails(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Raises where a graph is made of it."""

    error: Exception | None = None

    def call(self, rows: Any) -> Any:
        if self.error is not None:
            raise self.error
        return rows


class FailsToUpdate(keras.optimizers.SGD):  # type: ignore[misc]
    """Raises where an update is made of it."""

    error: Exception | None = None

    def update_step(self, *arguments: Any) -> None:
        if self.error is not None:
            raise self.error
        super().update_step(*arguments)


def raises_on_one_rank(strategy: Any) -> dict[str, list[str]]:
    """The script catches what is raised and goes on, in the end without a fault."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layer, optimizer = Fails(), FailsToUpdate(0.1)
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(3), layer, keras.layers.Dense(1)]
        )
        model.compile(optimizer, "mse")
    error = ValueError("this layer gives up: \N{SNOWMAN}") if strategy.stage == 1 else None
    told: dict[str, list[str]] = {"predict": [], "fit": [], "update": [], "losses": []}
    layer.error = error
    for method, data in (("predict", (X,)), ("fit", (X, Y)), ("fit", (X, Y))):
        told[method].append(_told(getattr(model, method), *data, verbose=0))
    layer.error, optimizer.error = None, error
    told["update"].append(_told(model.fit, X, Y, verbose=0))
    optimizer.error = None
    told["losses"] = [float(loss).hex() for loss in model.fit(X, Y, epochs=2, verbose=0).history["loss"]]
    return told


def raises_where_layers_are_measured(_: Any) -> list[str]:
    """A layer that one rank only cannot measure; then without a fault."""
    keras.utils.set_random_seed(1)
    strategy = paceline.PipelineStrategy(2, micro_batches=2, schedule="1f1b", balance="auto")
    with strategy.scope():
        # All are of other sizes: each is measured.
        layers = [keras.layers.Dense(3), Fails(), keras.layers.Dense(2), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((4,)), *layers])
        model.compile("sgd", "mse")
    Fails.error = ValueError("this layer gives up: \N{SNOWMAN}")
    try:
        told = [_told(model.fit, X, Y, verbose=0)]
    finally:
        Fails.error = None
    return [*told, _told(model.fit, X, Y, verbose=0)]


CASES = {
    case.__name__: case for case in (made_outside_of_the_scope, raises_on_one_rank, raises_where_layers_are_measured)
}


def run_case(name: str) -> Any:
    """Runs one of `CASES` on every rank."""
    return CASES[name](paceline.PipelineStrategy(2, micro_batches=2))
