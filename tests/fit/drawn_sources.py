"""Generators and PyDatasets drawn at random, read by `fit` or `evaluate` on every rank of a world.

A step notes its rows bit by bit, and then computes with them, in their place where TensorFlow lets it. That can be an
array of the script's: one that begins at a boundary, of which TensorFlow has cut out rows between boundaries. Most
arrays and rows here are so. The items of a `PyDataset` that one rank makes for all never were.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from aligned_arrays import BOUNDARY_BYTES, array_at

DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
WAYS = ("views", "views", "reused", "whole", "read only", "fresh", "tensors")
KINDS = ("generator", "generator", "endless generator", "items", "endless items", "items of threads")


def run_case(first: str, end: str, alone: str) -> Any:
    """What the drawn sources from `first` on, before `end`, give."""
    keras.config.set_floatx("float64")
    if first == "cut out by the script":
        return changed_by_a_step_on_cut_rows()
    return [told_of(number, is_alone=alone == "alone") for number in range(int(first), int(end))]


class Column:
    """The batches of one component, in arrays of the script.

    Args:
        draw: Where its properties come from.
        sizes: Rows of each batch.
        dtype: Of its numbers.
        is_alone: Whether one plain worker reads it. That takes a buffer at a boundary without a copy, while the script
            may fill it again: there is no telling what it reads.
    """

    def __init__(self, draw: random.Random, sizes: list[int], dtype: str, *, is_alone: bool) -> None:
        values = np.random.default_rng(draw.randrange(1 << 30)).integers(0, 100, (sum(sizes), *_row_shape(draw, dtype)))
        offset = draw.choice([0, 0, 0, draw.randrange(8, BOUNDARY_BYTES, 8)])
        self.way = draw.choice(WAYS)
        if self.way == "reused" and is_alone:
            offset = 8
        self.ends = np.cumsum(sizes)
        self.expected = values.astype(dtype)
        self.array = array_at(offset, self.expected)
        self.buffer = array_at(offset, self.expected[: max(sizes)])
        self.tensor = tf.constant(self.expected)
        self.num_changed = 0
        self._filled = max(sizes)
        self._content = self.buffer.copy()

    def batch(self, index: int) -> Any:
        begin, end = (0 if index == 0 else int(self.ends[index - 1])), int(self.ends[index])
        if self.way == "reused":
            self.check()
            self.buffer[: end - begin] = self.expected[begin:end]
            self._content = self.buffer.copy()
            return self.buffer[: end - begin]
        if self.way == "fresh":
            return self.expected[begin:end].copy()
        if self.way == "tensors":
            return self.tensor[begin:end]
        view = (self.array if self.way == "whole" else self.array[begin:end])[: end - begin]
        view.flags.writeable = self.way != "read only"
        return view

    def check(self) -> None:
        """Counts numbers of the script that are not what the script has written."""
        self.num_changed += int((self.buffer != self._content).sum()) + int((self.array != self.expected).sum())
        self.num_changed += int((self.tensor.numpy() != self.expected).sum())


def _row_shape(draw: random.Random, dtype: str) -> tuple[int, ...]:
    """Mostly one whose rows begin at boundaries: TensorFlow cuts others out as copies."""
    numbers = BOUNDARY_BYTES // np.dtype(dtype).itemsize
    return draw.choice([(numbers,), (numbers,), (2, numbers // 2), (3, numbers), (), (5,)])


class Items(keras.utils.PyDataset):
    def __init__(self, batch: Callable[[int], Any], number: int, *, is_endless: bool, workers: int) -> None:
        super().__init__(workers=workers)
        self._batch, self._number, self._is_endless = batch, number, is_endless

    @property
    def num_batches(self) -> int | None:
        return None if self._is_endless else self._number

    def __getitem__(self, index: int) -> Any:
        return self._batch(index % self._number)


class Noting(keras.Model):
    """Notes the rows of each step, and computes in their place."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Any] = []

    def call(self, x: Any) -> Any:
        return x

    def train_step(self, data: Any) -> Any:
        leaves = tf.nest.flatten(data)
        # Copies: NumPy's arrays would hold the rows for a while, and then nothing is computed in their place.
        copies = [tf.gather(leaf, tf.range(tf.shape(leaf)[0])) for leaf in leaves]
        is_noted = tf.numpy_function(self._note, copies, tf.int64)
        with tf.control_dependencies([is_noted]):
            return {"total": tf.add_n([tf.reduce_sum(tf.cast(_changed(leaf), tf.float64)) for leaf in leaves])}

    test_step = train_step

    def _note(self, *leaves: Any) -> Any:
        self.noted.append([[leaf.dtype.name, list(leaf.shape[1:]), leaf.tobytes().hex()] for leaf in leaves])
        return np.int64(0)


def _changed(leaf: Any) -> Any:
    return tf.logical_not(leaf) if leaf.dtype == tf.bool else leaf * tf.cast(3, leaf.dtype) + tf.cast(1, leaf.dtype)


def changed_by_a_step_on_cut_rows() -> int:
    """How many numbers of an array a step changes with rows that nobody has given memory of their own."""
    values = np.arange(1.0, 129.0).reshape(16, 8)
    array = array_at(0, values)
    spec = tf.TensorSpec([None, 8], "float64")
    dataset = tf.data.Dataset.from_generator(lambda: iter([array]), output_signature=spec)
    model = Noting()
    model.compile("sgd", run_eagerly=False, jit_compile=False)
    model.fit(dataset.map(lambda rows: rows[:8]), verbose=0)
    return int((array != values).sum())


def told_of(number: int, *, is_alone: bool) -> Any:
    """What one drawn source gives: the rows of each step, and how many numbers of the script's arrays have changed."""
    draw = random.Random(number)
    keras.utils.set_random_seed(number)
    kind = draw.choice(KINDS)
    rows = draw.choice([1, 2, 7, 16, 16, 32])
    sizes = [*[rows] * draw.randint(2, 5), draw.choice([rows, rows, max(1, rows // 2)])]
    dtypes = [draw.choice(DTYPES), draw.choice(DTYPES), *draw.choice([[], ["float64"], ["float32"]])]
    columns = [Column(draw, sizes, dtype, is_alone=is_alone) for dtype in dtypes]
    if kind == "items of threads":
        for column in columns:
            column.way = "views" if column.way == "reused" else column.way  # threads would fill it at the same time

    def batch(index: int) -> Any:
        return tuple(column.batch(index) for column in columns)

    def generated() -> Iterator[Any]:
        while True:
            yield from map(batch, range(len(sizes)))
            if "endless" not in kind:
                return

    is_endless = "endless" in kind
    workers = 2 if kind == "items of threads" or (kind == "endless items" and draw.random() < 0.5) else 1
    if workers > 1:
        for column in columns:
            column.way = "views" if column.way == "reused" else column.way
    items = Items(batch, len(sizes), is_endless=is_endless, workers=workers)
    source = generated() if "generator" in kind else items
    steps = draw.randint(2, 2 * len(sizes)) if is_endless else None
    model = Noting()
    model.compile("sgd", run_eagerly=False, jit_compile=False)
    if draw.random() < 0.3:
        model.evaluate(source, steps=steps, verbose=0)
    else:
        epochs = 1 if kind == "generator" else draw.randint(1, 2)
        model.fit(source, steps_per_epoch=steps, epochs=epochs, shuffle=draw.random() < 0.5, verbose=0)
    for column in columns:
        column.check()
    what = [kind, [column.way for column in columns], dtypes, sizes, steps]
    return {"what": what, "noted": model.noted, "changed": [column.num_changed for column in columns]}
