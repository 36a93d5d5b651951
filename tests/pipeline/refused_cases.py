"""Scripts that two stages refuse, and what every rank is told."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

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


class Convolved:
    """A model of sequences, of which one stage may raise where a graph is made of it for sequences of 9."""

    def __init__(self, strategy: Any, optimizer: Any) -> None:
        self.fails_on: int | None = None
        keras.utils.set_random_seed(1)
        with strategy.scope():
            first = keras.layers.Lambda(lambda rows: self._checked(0, rows))
            convolutions = [keras.layers.Conv1D(4, 3, padding="same") for _ in range(2)]
            mean = keras.layers.GlobalAveragePooling1D()
            self.model = keras.Sequential([keras.Input((None, 3)), first, *convolutions, mean])
            self.model.compile(optimizer, self._loss, steps_per_execution=7)

    def _checked(self, stage: int, rows: Any) -> Any:
        if self.fails_on == stage and rows.shape[1] == 9:
            raise ValueError("this model gives up: \N{SNOWMAN}")
        return rows

    def _loss(self, expected: Any, predicted: Any) -> Any:
        return keras.ops.mean((keras.ops.mean(self._checked(1, expected), 1) - predicted) ** 2, axis=1)


def _batches(*lengths: int) -> Any:
    random = np.random.default_rng(2)
    made = [(random.normal(size=(6, length, 3)), random.normal(size=(6, length, 4))) for length in lengths]
    specs = tf.TensorSpec([None, None, 3], tf.float32), tf.TensorSpec([None, None, 4], tf.float32)
    return tf.data.Dataset.from_generator(lambda: iter(made), output_signature=specs)


def raises_at_a_later_shape(_: Any) -> list[Any]:
    """Batches are under way when one comes for which functions are made anew; in the end a `fit` without a fault.

    What is trained in a `fit` that raises is what a `fit` trains whose data end there.
    """
    found: list[Any] = []
    for micro_batches, options in ((1, {}), (3, {}), (1, {"global_clipnorm": 0.1})):
        strategy = paceline.PipelineStrategy(2, micro_batches=micro_batches, schedule="pipedream", balance=[2, 2])
        for fails_on in range(2):
            raising, ending = (Convolved(strategy, keras.optimizers.SGD(0.1, **options)) for _ in range(2))
            raising.fails_on = fails_on
            told = _told(raising.model.fit, _batches(6, 4, 6, 4, 9, 6), verbose=0)
            raising.fails_on = None
            ending.model.fit(_batches(6, 4, 6, 4), verbose=0)
            fits = [one.model.fit(_batches(9, 4, 9, 5), epochs=2, verbose=0) for one in (raising, ending)]
            found.append((fails_on, told, *(fit.history["loss"] for fit in fits)))
    return found


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
    case.__name__: case
    for case in (
        made_outside_of_the_scope,
        raises_on_one_rank,
        raises_at_a_later_shape,
        raises_where_layers_are_measured,
    )
}


def run_case(name: str) -> Any:
    """Runs one of `CASES` on every rank."""
    return CASES[name](paceline.PipelineStrategy(2, micro_batches=2))
