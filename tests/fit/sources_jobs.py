"""Training on data that is read by the numbers of its rows: one function a case, each run by every rank of a world."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import paceline.data
from paceline import rank, world_size
from paceline.errors import DesynchronizedError

BATCH = 17
"""Divides among no number of workers."""
CASES: dict[str, Callable[[], Any]] = {}


def run_case(name: str) -> Any:
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(3)
    return CASES[name]()


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, 8)), generator.integers(0, 4, rows)


def train(data: Any, **options: Any) -> tuple[keras.Model, dict[str, Any]]:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    history = model.fit(data, **{"epochs": 3, "verbose": 0, **options}).history
    return model, {**history, "weights": [weight.ravel().tolist() for weight in model.get_weights()]}


def _files(directory: Path, rows_of_files: tuple[int, ...], compression: str = "") -> list[Path]:
    x, y = table(sum(rows_of_files))
    paths, row = [], 0
    for number, rows in enumerate(rows_of_files):
        paths.append(directory / f"{number}.tfrecord")
        with tf.io.TFRecordWriter(str(paths[-1]), compression) as writer:
            for at in range(row, row + rows):
                writer.write(x[at].tobytes() + y[at].astype("int64").tobytes())
        row += rows
    return paths


def _parse(record: Any, seed: Any) -> Any:
    x = tf.io.decode_raw(tf.strings.substr(record, 0, 64), tf.float64)
    y = tf.io.decode_raw(tf.strings.substr(record, 64, 8), tf.int64)
    noise = tf.random.stateless_normal([8], seed, stddev=0.1, dtype=tf.float64)
    return tf.ensure_shape(x, [8]) + noise, tf.ensure_shape(y, [1])[0]


class _Table:
    def __init__(self, rows: int, seed: int = 0) -> None:
        self._x, self._y = table(rows, seed)

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, row: int) -> tuple[np.ndarray, np.int64]:
        return self._x[row], self._y[row]


@case
def records_with_augmentation_and_class_weights() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        files = _files(Path(directory), (20, 0, 1, 32))
        return train(
            paceline.data.records(files, _parse, BATCH, shuffle=True, seed=5),
            validation_data=paceline.data.rows(_Table(19, seed=8), 7),
            class_weight={0: 1.0, 1: 2.0, 2: 0.5, 3: 0.0},
        )[1]


@case
def rows_repeated_with_steps() -> dict[str, Any]:
    data = paceline.data.rows(_Table(50), BATCH, shuffle=True).repeat()
    return train(data, steps_per_epoch=5)[1]


@case
def rows_that_leave_ranks_without_any() -> dict[str, Any]:
    data = paceline.data.rows(_Table(2 * BATCH + 1), BATCH, shuffle="blocks")
    model, result = train(data)
    evaluated = model.evaluate(data, verbose=0)
    predicted = model.predict(paceline.data.rows(_Table(20), BATCH).map(lambda x, y: x), verbose=0)
    return {**result, "evaluated": evaluated, "predicted": predicted.tolist()}


@case
def sources_that_differ() -> Any:
    """Another file, other rows, or another order on the last rank."""
    is_last = rank() == world_size() - 1

    def refused(data: Any) -> str:
        try:
            train(data)
        except DesynchronizedError as fault:
            return str(fault)
        return "no error"

    with tempfile.TemporaryDirectory() as directory:
        folders = [Path(directory) / name for name in ("same", "other")]
        for folder in folders:
            folder.mkdir()
        files, others = _files(folders[0], (10, 20, 5)), _files(folders[1], (10, 21, 4))
        in_other_order = [files[0], files[2], files[1]]
        return {
            "same": refused(paceline.data.records(files, _parse, 5)),
            "file": refused(paceline.data.records(others if is_last else files, _parse, 5)),
            "order": refused(paceline.data.records(in_other_order if is_last else files, _parse, 5)),
            "seed": refused(paceline.data.rows(_Table(10), 5, shuffle=True, seed=7 if is_last else 6)),
            "rows": refused(paceline.data.rows(_Table(10, seed=7 if is_last else 6), 5)),
        }


@case
def batches_of_grain() -> dict[str, Any]:
    import grain

    x, y = table(52)
    rows = grain.MapDataset.range(52).shuffle(seed=5).map(lambda row: (x[row], y[row]))
    batches, validation = rows.batch(BATCH), rows.batch(7, drop_remainder=True)
    if "paceline.fit.epochs" not in sys.modules:
        # Batches of a known number: at the end of others, Keras counts a step of the optimizer that is not made.
        columns = [np.stack(column) for column in zip(*(rows[row] for row in range(52)), strict=True)]
        batches = tf.data.Dataset.from_tensor_slices(tuple(columns)).batch(BATCH)
    return train(batches, validation_data=validation)[1]


@case
def rows_of_grain_that_are_asked_for() -> dict[str, Any]:
    import grain

    asked = []

    def row_of(row: int) -> Any:
        asked.append(row)
        return np.ones(8) * row, row % 4

    model, _ = train(grain.MapDataset.range(34).map(row_of).batch(BATCH), epochs=1)
    del asked[:]
    model.fit(grain.MapDataset.range(34).map(row_of).batch(BATCH), epochs=2, verbose=0)
    return {"asked": len(asked)}


@case
def compressed_files_of_other_lengths() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        files = _files(Path(directory), (BATCH, 1, 2 * BATCH), "GZIP")
        data = paceline.data.records(files, _parse_without_noise, BATCH, shuffle=True)
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        evaluated = model.evaluate(data, verbose=0)
        model.fit(data, epochs=2, verbose=0)
    return {"evaluated": evaluated}


def _parse_without_noise(record: Any) -> Any:
    x, y = tf.split(tf.reshape(tf.io.decode_raw(record, tf.float64), [9]), [8, 1])
    return x, tf.bitcast(y[0], tf.int64)
