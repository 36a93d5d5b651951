"""The update of 2.77 million weights alone, on one core: Keras's operations, XLA, and one loop; milliseconds.

python update_alone.py          (the results go to the file that BENCH_RESULT names)
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.spmd.messages import Alone
from paceline.spmd.partition import Partitioner
from paceline.strategy.fused_updates import FusedUpdateCalls

NUM_WEIGHTS, TURNS = 2_770_000, 25
O = keras.optimizers  # noqa: E741
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "Adam": O.Adam,
    "AdamW": O.AdamW,
    "SGD, Nesterov": lambda: O.SGD(0.1, momentum=0.9, nesterov=True),
    "RMSprop": O.RMSprop,
    "Adagrad": O.Adagrad,
    "Lion": O.Lion,
}


def milliseconds(call: Callable[[], Any]) -> float:
    for _ in range(5):
        call()
    took = []
    for _ in range(TURNS):
        begin = time.perf_counter()
        call()
        took.append(time.perf_counter() - begin)
    return float(np.median(took) * 1e3)


def measured(make: Callable[[], Any]) -> dict[str, float]:
    gradient = tf.constant(np.random.default_rng(1).normal(size=NUM_WEIGHTS).astype("float32") * 0.01)

    def update(**options: Any) -> Any:
        weights = keras.Variable(np.zeros(NUM_WEIGHTS, "float32"))
        optimizer = make()
        optimizer.build([weights])
        return tf.function(lambda g: optimizer.apply([g], [weights]), autograph=False, **options)

    operations, xla = update(), update(jit_compile=True)
    traced = update().get_concrete_function(tf.TensorSpec([NUM_WEIGHTS], tf.float32))
    begin = time.perf_counter()
    loop = Partitioner(Alone(), FusedUpdateCalls()).divided(traced, [False]).get_concrete_function()
    made = time.perf_counter() - begin
    none = tf.constant(0, tf.int64)
    return {
        "operations": milliseconds(lambda: operations(gradient)),
        "XLA": milliseconds(lambda: xla(gradient)),
        "one loop": milliseconds(lambda: loop(none, none, gradient)),
        "made in": made * 1e3,
    }


def main() -> None:
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps({name: measured(make) for name, make in OPTIMIZERS.items()}))


main()
