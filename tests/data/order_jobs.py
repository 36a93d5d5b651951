"""Stages that may give their elements in any order: one function a case, each run by every rank of a warm world.

The row 0 of each stage waits until the row 1 is made, so that a stage that may hand on what is there hands on 1 first.
"""

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import paceline.data.own_rows.local_batches

_WAIT_SECONDS = 20.0


def run_case(name: str) -> Any:
    del name
    return {kind: [int(row) for row in rows.unbatch()] for kind, rows in _datasets().items()}


def _second_first() -> Callable[[Any], Any]:
    is_second_made = threading.Event()

    def wait(row: Any) -> Any:
        if row == 1:
            is_second_made.set()
        elif row == 0:
            is_second_made.wait(_WAIT_SECONDS)
        return row

    return lambda row: tf.ensure_shape(tf.numpy_function(wait, [row], tf.int64), [])


def _datasets() -> dict[str, tf.data.Dataset]:
    threads, any_order = tf.data.Options(), tf.data.Options()
    threads.threading.private_threadpool_size = 3
    any_order.deterministic = False
    rows = tf.data.Dataset.range(4)
    two = {"num_parallel_calls": 2, "deterministic": False}

    def alone(row: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(row).map(waits[0])

    waits = [_second_first()]
    made = {"map": rows.map(_second_first(), **two)}
    made["inside"] = tf.data.Dataset.range(1).flat_map(lambda _: tf.data.Dataset.range(4).map(_second_first(), **two))
    made["interleave"] = rows.interleave(alone, cycle_length=2, **two)
    waits[0] = _second_first()
    made["sloppy"] = rows.apply(tf.data.experimental.parallel_interleave(alone, cycle_length=2, sloppy=True))
    batched = {kind: dataset.with_options(threads).batch(2) for kind, dataset in made.items()}
    of_options = rows.map(_second_first(), num_parallel_calls=2).with_options(threads).with_options(any_order).batch(2)
    batched["options"] = paceline.data.own_rows.local_batches.local_batches(of_options, 0, 2)
    return batched
