"""Which engine trains a model, where that is not plain: prints a line for each case, on each rank."""

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import paceline

X = np.arange(16, dtype="float32").reshape(8, 2) / 16
Y = X.sum(axis=1, keepdims=True)


def dense() -> Any:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


class Asks(keras.Sequential):
    """Its step asks another model while it is traced."""

    other: Any = None
    shapes: list[Any]

    def train_step(self, data: Any) -> Any:
        with tf.init_scope():
            self.shapes.append(self.other.predict(X[:4], verbose=0).shape)
        return super().train_step(data)


class Noted(keras.callbacks.Callback):
    """Says which hooks were called."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks: list[str] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.hooks.append("begin")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.hooks.append(f"batch {batch}")


def made_outside() -> str:
    """A model made outside of the scope in which it is compiled, trained and asked."""
    model = dense()
    with strategy.scope():
        model.compile("sgd", "mse")
        model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
        shape = model.predict(X, verbose=0).shape
    return f"{shape} {float(model.get_weights()[0].sum())!r} {int(model.optimizer.iterations)}"


def asking() -> str:
    with strategy.scope():
        model, other = Asks([keras.Input((2,)), keras.layers.Dense(1)]), dense()
        model.other, model.shapes = other, []
        model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=4, verbose=0)
    return f"{sorted(set(model.shapes))}"


def listed() -> str:
    """A list of callbacks without a model, in a loop of the script's own."""
    noted = Noted()
    callbacks = keras.callbacks.CallbackList([noted])
    callbacks.on_train_begin()
    callbacks.on_train_batch_end(3, {})
    return ", ".join(noted.hooks)


def wrong() -> str:
    try:
        dense().compile(wrong=1)
    except TypeError as error:
        return str(error)
    return "no error"


strategy = paceline.MultiWorkerMirroredStrategy()
for case in (made_outside, asking, listed, wrong):
    print(f"{case.__name__} {case()}", flush=True)
