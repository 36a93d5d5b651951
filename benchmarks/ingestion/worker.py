"""One `fit` over a pipeline, each rank on a core of its own; the chief writes the rows a second after the first epoch.

    worker.py KIND divided|whole

KIND is the pipeline; `whole` leaves the maps on all rows on every rank, for comparison.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

RANK = int(os.environ.get("PACELINE_RANK", "0"))
CORES = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORES[RANK % len(CORES)]})

import keras  # noqa: E402  # after the cores are chosen: TensorFlow counts them
import tensorflow as tf  # noqa: E402

ROWS = {"heavy": 1920, "light": 30000, "arrays": 100000}
BATCH, FEATURES = 64, 64


def heavy(number: Any) -> Any:
    """Some milliseconds of a core, as decoding an image takes."""
    matrix = tf.reshape(tf.cast(number % 7, tf.float32) * 0.01 + tf.range(64, dtype=tf.float32) * 1e-3, (8, 8))
    for _ in tf.range(300):
        matrix = tf.tanh(tf.matmul(matrix, matrix) + matrix)
    return tf.reshape(matrix, (FEATURES,)), tf.cast(number % 2, tf.float32)


def light(number: Any) -> Any:
    """Less than the rest of the pipeline does for a row."""
    return tf.fill([FEATURES], tf.cast(number, tf.float32) / 255.0), tf.cast(number % 2, tf.float32)


def data_of(kind: str) -> dict[str, Any]:
    """What `fit` is given."""
    rows = ROWS[kind]
    if kind == "arrays":
        return {"x": tf.zeros([rows, FEATURES]).numpy(), "y": tf.zeros([rows]).numpy(), "batch_size": BATCH}
    numbers = tf.data.Dataset.from_tensor_slices(tf.range(rows, dtype=tf.int64)).shuffle(500, seed=5)
    mapped = numbers.map({"heavy": heavy, "light": light}[kind], num_parallel_calls=tf.data.AUTOTUNE)
    return {"x": mapped.batch(BATCH).prefetch(2)}


def main(kind: str, way: str) -> None:
    """Trains, and writes."""
    if way == "whole":
        from paceline.data.stages import Whole
        from paceline.fit import epochs

        epochs.divided = lambda dataset: Whole()
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), loss="mse", steps_per_execution=10)
    data = data_of(kind)
    model.fit(**data, epochs=1, verbose=0)
    begin, processor_begin = time.perf_counter(), time.process_time()
    model.fit(**data, epochs=2, verbose=0)
    seconds, processor_seconds = time.perf_counter() - begin, time.process_time() - processor_begin
    rows = 2 * ROWS[kind]
    figures = {"rows_per_second": rows / seconds, "rows_per_processor_second": rows / processor_seconds}
    if RANK == 0:
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
