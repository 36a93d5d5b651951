"""A `fit` of two epochs behind a large shuffle buffer; the chief writes what the first batch of each has waited.

epochs_worker.py early|late        late: the buffer of the second epoch is filled when it begins
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

FILES, ROWS_OF_FILE, BUFFER, BATCH, FEATURES = 40, 5_000, 50_000, 64, 64


def features(number: Any) -> Any:
    """Some microseconds of a core, as parsing a small record takes."""
    text = tf.strings.as_string(tf.range(FEATURES) + tf.cast(number % 100, tf.int32))
    return tf.strings.to_number(text) / 255.0, tf.cast(number % 2, tf.float32)


class Clock(keras.callbacks.Callback):
    """When the first step of each epoch has been made, counted from the beginning of the epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            self.seconds.append(time.perf_counter() - self.begin)


def main(way: str) -> None:
    """Trains, and writes."""
    files = tf.data.Dataset.range(FILES).shuffle(FILES)
    # In the interleave, where a parser often is: it stays in front of the shuffle, with two workers, too.
    rows = files.interleave(lambda file: tf.data.Dataset.range(ROWS_OF_FILE).map(lambda row: features(row + file)))
    rows = rows.apply(tf.data.experimental.assert_cardinality(FILES * ROWS_OF_FILE))
    held_back = tf.data.Dataset.range(4096).map(features).batch(BATCH)
    data = rows.shuffle(BUFFER).batch(BATCH).prefetch(2)
    if way == "late":
        options = tf.data.Options()
        options.experimental_warm_start = False
        data = data.with_options(options)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(2048, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), loss="mse")
    model.fit(held_back, validation_data=held_back, verbose=0)  # traces
    clock = Clock()
    begin = time.perf_counter()
    model.fit(data, epochs=2, validation_data=held_back, callbacks=[clock], verbose=0)
    figures = {"first": clock.seconds[0], "second": clock.seconds[1], "fit": time.perf_counter() - begin}
    if RANK == 0:
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
