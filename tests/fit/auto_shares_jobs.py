"""Training while shares change every few steps: one function a kind of data, each run by every rank, and by Keras."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

BATCH = 12
NUM_ROWS = 31 * BATCH + 1
"""The last batch leaves ranks without a row."""
CASES: dict[str, Callable[[], Any]] = {}


def run_case(name: str) -> Any:
    """What a fit has come to, and how the rows of its steps were shared out."""
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(3)
    if name == "clocks_of_a_slow_worker":
        return clocks_of_a_slow_worker()
    data = CASES[name]()
    rows: list[list[int]] = []
    if "PACELINE_RANK" in os.environ:
        from paceline.fit.auto_shares import AutoShares
        from rotating_shares import Rotating

        class Noting(Rotating):
            def hear(self, first: int, told: Any, rows_of_ranks: Any) -> Any:
                rows.append([*rows_of_ranks])
                return super().hear(first, told, rows_of_ranks)

        AutoShares.choose = Noting
    return {**train(data), "rows": rows}


def clocks_of_a_slow_worker() -> dict[str, Any]:
    """All ranks are told that rank 1 computes twice as long per row; what becomes of the rows of a step."""
    from paceline.comm.share_choice import ShareChoice
    from paceline.comm.step_clock import NUM_STEPS, Phase
    from paceline.fit.auto_shares import AutoShares

    rows_of_steps: list[list[int]] = []

    class Told(ShareChoice):
        def hear(self, first: int, told: Any, rows: Any) -> Any:
            told = np.zeros_like(told)
            if rows_of_steps:
                told[:, Phase.COMPUTE] = [1e6 * rows_of_steps[-1][0], 2e6 * rows_of_steps[-1][1]]
                told[:, NUM_STEPS] = 1
            rows_of_steps.append([*rows])
            return super().hear(first, told, rows)

    AutoShares.choose = Told
    x, y = table()
    train({"x": x, "y": y, "batch_size": BATCH, "epochs": 3})
    return {"rows": rows_of_steps[-2]}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def table() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(NUM_ROWS, 8)), generator.integers(0, 4, NUM_ROWS)


def train(data: dict[str, Any]) -> dict[str, Any]:
    layers = [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.2, seed=1)]
    more = [keras.layers.BatchNormalization(), keras.layers.Dense(4)]
    model = data.pop("model", None) or keras.Sequential([*layers, *more])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    steps = data.pop("steps_per_execution", 1)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], steps_per_execution=steps)
    x, y = table()
    options = {"epochs": 2, "verbose": 0, "validation_data": (x[:50], y[:50]), "validation_batch_size": 8, **data}
    history = model.fit(**options).history
    return {**history, "weights": [weight.ravel().tolist() for weight in model.get_weights()]}


@case
def arrays() -> Any:
    x, y = table()
    return {"x": x, "y": y, "batch_size": BATCH, "shuffle": True}


@case
def whole_batches() -> Any:
    return {"x": tf.data.Dataset.from_tensor_slices(table()).shuffle(50, seed=1).batch(BATCH)}


@case
def maps_before_and_behind_the_batch() -> Any:
    rows = tf.data.Dataset.from_tensor_slices(table()).shuffle(50, seed=1)
    rows = rows.map(lambda x, y: (x * 2.0, y), num_parallel_calls=tf.data.AUTOTUNE)
    return {"x": rows.batch(BATCH).map(lambda x, y: (x + 1.0, y)).prefetch(tf.data.AUTOTUNE)}


@case
def maps_of_batches_of_one_size() -> Any:
    """The function of the map is traced for twelve rows: all ranks make whole batches."""
    rows = tf.data.Dataset.from_tensor_slices(table()).map(lambda x, y: (x * 2.0, y))
    return {"x": rows.batch(BATCH, drop_remainder=True).map(lambda x, y: (x + 1.0, y))}


@case
def steps_over_epochs_of_one_iterator() -> Any:
    rows = tf.data.Dataset.from_tensor_slices(table()).map(lambda x, y: (x * 2.0, y))
    return {"x": rows.batch(BATCH).repeat().prefetch(3), "steps_per_epoch": 25, "steps_per_execution": 5}


@case
def a_layer_with_a_state_for_each_row() -> Any:
    """It goes on in the next batch where it was in this one, whoever has the row then."""
    x, y = table()
    layers = [keras.Input(batch_shape=(BATCH, 4, 2)), keras.layers.LSTM(5, stateful=True), keras.layers.Dense(4)]
    x, y = x[: 31 * BATCH].reshape(-1, 4, 2), y[: 31 * BATCH]
    return {"model": keras.Sequential(layers), "x": x, "y": y, "batch_size": BATCH, "validation_data": None}


@case
def short_epochs() -> Any:
    x, y = table()
    return {"x": x[: 3 * BATCH], "y": y[: 3 * BATCH], "batch_size": BATCH, "epochs": 12}


class Items(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        x, y = table()
        return x[index * BATCH : (index + 1) * BATCH], y[index * BATCH : (index + 1) * BATCH]


@case
def items() -> Any:
    return {"x": Items()}


@case
def generator() -> Any:
    def made() -> Iterator[Any]:
        while True:
            yield from (Items()[index] for index in range(31))

    return {"x": made(), "steps_per_epoch": 31}


class Rows:
    def __init__(self) -> None:
        self._x, self._y = table()

    def __len__(self) -> int:
        return NUM_ROWS

    def __getitem__(self, row: int) -> Any:
        return self._x[row], self._y[row]


@case
def rows_by_index() -> Any:
    import paceline.data

    return {"x": paceline.data.rows(Rows(), BATCH, shuffle=True, seed=5)}
