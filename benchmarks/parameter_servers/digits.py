"""The data and the sizes that all sides share; imported in each side's own environment."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

BATCH = 64
EPOCHS = 3
"""Of a turn. The first is not measured: iterators and functions are made in it."""
STEPS_PER_EPOCH = {1: 30, 10: 60}
"""By `steps_per_execution`."""


def dataset() -> tf.data.Dataset:
    """Batches of digits without end. Bytes until they are batched: the rows are constants of the function that makes
    a dataset on a worker."""
    with np.load(Path(__file__).parents[2] / "examples" / "data" / "mnist_10k.npz") as arrays:
        x, y = arrays["x_train"].astype(np.uint8), arrays["y_train"].astype(np.int32)
    options = tf.data.Options()  # a process has one core
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 1
    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=1).repeat().batch(BATCH)
    return rows.map(lambda x, y: (tf.cast(x, tf.float32) / 255, y)).prefetch(2).with_options(options)


def say(word: str) -> None:
    """To the process that measures: "begin", or "end" of what it measures."""
    print(word, flush=True)


def take_turns(variants: Mapping[str, Callable[[], None]]) -> None:
    """Calls the variant that each line of stdin names, until there are no more lines."""
    for line in sys.stdin:
        variants[json.loads(line)]()
