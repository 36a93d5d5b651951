"""Snapshots of a 512 MB table on two parameter servers: how long steps wait for each. Writes to BENCH_RESULT.

paceline run --workers 1 --ps 2 --snapshot-dir FOLDER --snapshot-every 40 snapshot_pause.py
"""

import json
import os
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import paceline

ROWS, COLUMNS, IDS = 2_000_000, 64, 1280
EVERY, SNAPSHOTS = 40, 4
STEPS = EVERY * SNAPSHOTS + EVERY // 2
_BEGAN: list[float] = []
_ENDED: list[float] = []


class Clock(keras.callbacks.Callback):
    """Between the end of a step and the begin of the next, snapshots are taken."""

    def on_train_batch_begin(self, batch, logs=None) -> None:
        _BEGAN.append(time.perf_counter())

    def on_train_batch_end(self, batch, logs=None) -> None:
        _ENDED.append(time.perf_counter())


partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
strategy = paceline.ParameterServerStrategy(variable_partitioner=partitioner)
with strategy.scope():
    table = keras.layers.Embedding(ROWS, COLUMNS)
    model = keras.Sequential([keras.Input((1,), dtype="int64"), table, keras.layers.Flatten()])
    model.compile(keras.optimizers.SGD(0.1), "mse")
ids = np.random.default_rng(0).integers(0, ROWS, (IDS * STEPS, 1))
model.fit(ids, np.ones((len(ids), COLUMNS), np.float32), batch_size=IDS, shuffle=False, verbose=0, callbacks=[Clock()])
gaps = [begin - end for end, begin in zip(_ENDED, _BEGAN[1:], strict=False)]
pauses = [gaps[step - 1] for step in range(EVERY, STEPS, EVERY)]
others = [gap for step, gap in enumerate(gaps, 1) if step % EVERY and step > 2]
seconds_a_step = (_ENDED[-1] - _ENDED[EVERY] - sum(gaps[EVERY:])) / (STEPS - EVERY)
result = {
    "pauses": pauses,
    "first": gaps[0],
    "step": seconds_a_step,
    "longest_other": max(others),
    "megabytes": ROWS * COLUMNS * 4 / 1e6,
}
Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
