"""Tests of `paceline.data.freed_iterators`: nobody waits for an iterator that is freed."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from paceline.data.freed_iterators import freed_in_threads

_DEADLINE_SECONDS = 20.0


def test_who_drops_an_iterator_does_not_wait_until_it_is_freed() -> None:
    """Keras's loop dropped the iterator of an epoch, and waited for a thread of TensorFlow's that was asleep."""
    may_end, ended_in = threading.Event(), []

    def rows() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:  # TensorFlow ends the generator when the iterator is freed
            ended_in.append(may_end.wait(_DEADLINE_SECONDS))

    dataset = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((), tf.int64))
    iterator = iter(freed_in_threads(dataset))
    assert int(next(iterator)) == 1
    del iterator
    gc.collect()
    may_end.set()
    for thread in threading.enumerate():
        if thread.name == "paceline frees an iterator":
            thread.join(_DEADLINE_SECONDS)
    assert ended_in == [True]


def test_an_iterator_that_its_dataset_knows_is_freed() -> None:
    """As where a map's function holds what holds the iterator; it had stayed, with the dataset and the model."""
    freed: list[str] = []

    def make() -> None:
        known: list[Any] = []
        known.append(iter(freed_in_threads(tf.data.Dataset.range(4).map(lambda number: number + len(known)))))
        weakref.finalize(known[0], freed.append, "it")

    make()
    gc.collect()
    assert freed == ["it"]


_PROCESS = """
import tensorflow as tf
from paceline.data.freed_iterators import freed_in_threads
kept = iter(freed_in_threads(tf.data.Dataset.range(4).prefetch(1)))
kept.itself = kept
print(int(next(kept)))
"""


def test_a_process_ends_with_iterators_that_are_left() -> None:
    ended = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, timeout=60, check=True, text=True)
    assert ended.stdout == "0\n"


def test_a_dataset_that_writes_a_file_is_left_as_it_is(tmp_path: Path) -> None:
    rows = tf.data.Dataset.range(4)
    for dataset in (rows.cache(str(tmp_path / "rows")).batch(2), rows.snapshot(str(tmp_path / "snapshot"))):
        assert freed_in_threads(dataset) is dataset
    assert list(freed_in_threads(rows.cache().batch(2)))[1].numpy().tolist() == [2, 3]


def test_what_is_no_dataset_is_left_as_it_is() -> None:
    rows = [1, 2]
    assert freed_in_threads(rows) is rows
