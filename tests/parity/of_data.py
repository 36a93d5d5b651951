"""Where the rows come from: datasets of every length, arrays, sequences, generators, several inputs."""

import inspect
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import optimizers

from parity.ingredients import (
    BATCH,
    batches,
    convolutional_model,
    cross_entropy,
    dense_model,
    digits,
    layers,
    table,
    train,
)
from parity.registry import job


@job(worlds=())
def sgd_on_real_digits() -> dict[str, Any]:
    data = tf.data.Dataset.from_tensor_slices(digits(200)).shuffle(200, seed=3).batch(BATCH)
    return train(convolutional_model(), optimizers.SGD(0.1), data, validation_data=batches(digits(57)))


@job(worlds=())
def a_rank_without_rows() -> dict[str, Any]:
    return train(convolutional_model(), optimizers.SGD(0.1, momentum=0.9), batches(digits(BATCH + 1)))


def _every_size_from_one_row(last: int) -> dict[str, Any]:
    """Fits on 1, 2, … rows, so that first one rank, then some, then all have rows in the batch that does not divide."""
    model = dense_model()
    model.compile(optimizers.SGD(0.1), cross_entropy(), metrics=["accuracy"])
    history: dict[str, Any] = {}
    for rows in range(1, last + 1):
        # One compiled model for all sizes: plain SGD keeps nothing, and a new graph a size is most of the cost.
        data = tf.data.Dataset.from_tensor_slices(table(rows)).batch(4)
        found = model.fit(data, epochs=2, verbose=0).history
        history |= {f"{rows}_{key}": values for key, values in found.items()}
    return {"model": model, "history": history}


@job(worlds=())
def every_size_up_to_two_rows_in_the_second_batch() -> dict[str, Any]:
    return _every_size_from_one_row(6)


@job(worlds=())
def every_size_up_to_three_batches() -> dict[str, Any]:
    return _every_size_from_one_row(12)


@job(worlds=())
def repeated_data_with_steps() -> dict[str, Any]:
    data = tf.data.Dataset.from_tensor_slices(table(50)).shuffle(50).repeat().batch(BATCH)
    endless = batches(table(21, seed=5)).repeat()
    steps = {"steps_per_epoch": 5, "validation_data": endless, "validation_steps": 3}
    return train(dense_model(), optimizers.SGD(0.1), data, **steps)


@job(worlds=())
def arrays_shuffled_by_keras() -> dict[str, Any]:
    x, y = table(53)
    return train(dense_model(), optimizers.Adam(0.01), x, y, batch_size=BATCH, validation_split=0.2)


@job()
def arrays_with_validation_arrays_and_class_weights() -> dict[str, Any]:
    x, y = table(37)
    weights = {0: 1.0, 1: 2.0, 2: 0.5, 3: 0.0}
    validation = table(19, seed=8)
    return train(
        dense_model(),
        optimizers.SGD(0.1),
        x,
        y,
        batch_size=BATCH,
        shuffle=False,
        validation_data=validation,
        class_weight=weights,
    )


class _Slices(keras.utils.PyDataset):
    """A dataset in Python that changes after each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._x, self._y = table(37)
        self._epoch = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return self._x[rows] + 0.1 * self._epoch, self._y[rows]

    def on_epoch_end(self) -> None:
        self._epoch += 1


@job(worlds=())
def python_dataset() -> dict[str, Any]:
    return train(dense_model(), optimizers.SGD(0.1), _Slices(), validation_data=_Slices())


@job(worlds=())
def python_generator() -> dict[str, Any]:
    def endless() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        generator = np.random.default_rng(4)
        while True:
            rows = int(generator.integers(1, 9))
            yield generator.normal(size=(rows, 8)), generator.integers(0, 4, rows)

    return train(dense_model(), optimizers.SGD(0.1), endless(), steps_per_epoch=4)


@job()
def several_inputs_and_outputs() -> dict[str, Any]:
    left, right = keras.Input((8,), name="left"), keras.Input((3,), name="right")
    together = layers.Concatenate()([layers.Dense(6, "tanh")(left), right])
    model = keras.Model(
        {"left": left, "right": right},
        {"kind": layers.Dense(4, name="kind")(together), "size": layers.Dense(1, name="size")(together)},
    )
    x, y = table(37)
    generator = np.random.default_rng(6)
    inputs = {"left": x, "right": generator.normal(size=(37, 3))}
    targets = {"kind": y, "size": generator.normal(size=(37, 1))}
    options = {
        "loss": {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"},
        "loss_weights": {"kind": 1.0, "size": 0.3},
        "metrics": {"kind": ["accuracy"], "size": ["mae"]},
    }
    return train(model, optimizers.Adam(0.01), batches((inputs, targets)), compile_options=options)


@job(worlds=())
def ragged_sequences() -> dict[str, Any] | None:
    if "ragged" not in inspect.signature(keras.Input).parameters:
        return None
    generator = np.random.default_rng(2)
    lengths = generator.integers(1, 6, 37)
    words = tf.RaggedTensor.from_row_lengths(generator.integers(0, 20, lengths.sum()), lengths)
    inputs = keras.Input((None,), dtype="int64", ragged=True)
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(20, 6)(inputs))
    data = tf.data.Dataset.from_tensor_slices((words, generator.integers(0, 4, 37))).batch(BATCH)
    return train(keras.Model(inputs, layers.Dense(4)(pooled)), optimizers.Adam(0.01), data)
