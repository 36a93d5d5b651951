"""Float32: one step agrees to rounding; several epochs drift, as one process does that adds in another order."""

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import optimizers

from parity.ingredients import BATCH, convolutional_model, cross_entropy, digits, train
from parity.registry import job

_OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optimizers.SGD(0.1),
    "adam": lambda: optimizers.Adam(0.003),
}
_EPOCHS = 3
_ROWS = 15 * BATCH + 5


def _fresh_model() -> keras.Model:
    keras.utils.set_random_seed(11)  # the runs that are compared start from the same weights
    return convolutional_model()


def _data(rows: int = _ROWS) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(digits(rows)).batch(BATCH)


@job(worlds=(), dtype="float32")
def float32_one_step_of_sgd() -> dict[str, Any]:
    return train(_fresh_model(), _OPTIMIZERS["sgd"](), _data(BATCH), epochs=1)


@job(dtype="float32")
def float32_one_step_of_adam() -> dict[str, Any]:
    return train(_fresh_model(), _OPTIMIZERS["adam"](), _data(BATCH), epochs=1)


@job(dtype="float32", worlds=())
def float32_one_step_of_muon() -> dict[str, Any] | None:
    if keras.__version__.startswith("3.10."):
        return None  # its Muon cannot train on TensorFlow at all
    return train(_fresh_model(), optimizers.Muon(0.01), _data(BATCH), epochs=1)


@job(worlds=(), dtype="float32")
def float32_epochs_of_sgd() -> dict[str, Any]:
    return train(_fresh_model(), _OPTIMIZERS["sgd"](), _data(), epochs=_EPOCHS)


@job(worlds=(), dtype="float32")
def float32_epochs_of_adam() -> dict[str, Any]:
    return train(_fresh_model(), _OPTIMIZERS["adam"](), _data(), epochs=_EPOCHS)


def _in_parts(optimizer: Any, num_parts: int) -> dict[str, Any]:
    """One process that sums each batch's gradient over `num_parts` contiguous slices, each over the global rows."""
    model, loss_of = _fresh_model(), cross_entropy(reduction="sum")
    optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def gradients_of(x: Any, y: Any, num_rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) / num_rows
        return tape.gradient(loss, model.trainable_variables)

    x_all, y_all = digits(_ROWS)
    for _ in range(_EPOCHS):
        for begin in range(0, _ROWS, BATCH):
            x, y = x_all[begin : begin + BATCH], y_all[begin : begin + BATCH]
            bounds = [len(x) * part // num_parts for part in range(num_parts + 1)]
            parts = [
                gradients_of(x[first:last], y[first:last], np.float32(len(x)))
                for first, last in itertools.pairwise(bounds)
            ]
            sums = [sum(gradients[1:], start=gradients[0]) for gradients in zip(*parts, strict=True)]
            optimizer.apply(sums, model.trainable_variables)
    return {"model": model, "history": {}}


def _register_parts(name: str, num_parts: int) -> None:
    def parts() -> dict[str, Any]:
        return _in_parts(_OPTIMIZERS[name](), num_parts)

    parts.__name__ = f"float32_epochs_of_{name}_in_{num_parts}_parts"
    job(worlds=(), dtype="float32")(parts)


for _name in _OPTIMIZERS:
    for _num_parts in (2, 3, 4):
        _register_parts(_name, _num_parts)
