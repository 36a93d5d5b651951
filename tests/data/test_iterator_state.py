from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from paceline.data.order.iterator_state import (
    NoIteratorStateError,
    estimated_state_bytes,
    iterator_state,
    num_shuffles,
    restore_iterator,
)


def pipeline() -> tf.data.Dataset:
    data = tf.data.Dataset.range(60).shuffle(20, seed=4)
    return data.map(lambda number: number * 2, num_parallel_calls=2).batch(4).prefetch(2)


def rest(iterator: object) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in iterator]  # type: ignore[attr-defined]


def test_goes_on_where_it_was_and_in_the_epochs_after() -> None:
    data = pipeline()
    first = iter(data)
    for _ in range(4):
        next(first)
    state = iterator_state(first)
    expected = [rest(first), rest(iter(data)), rest(iter(data))]
    again = pipeline()
    second = iter(again)
    restore_iterator(second, state)
    assert [rest(second), rest(iter(again)), rest(iter(again))] == expected


def test_a_shuffle_that_has_given_its_rows_writes_no_seed() -> None:
    iterator = iter(tf.data.Dataset.range(60).shuffle(20).batch(8))
    assert num_shuffles(iterator_state(iterator)) == 1
    for _ in range(8):
        next(iterator)
    assert num_shuffles(iterator_state(iterator)) == 0


@pytest.mark.parametrize(
    ("make", "operation"),
    [
        (lambda: tf.data.Dataset.range(9).map(lambda n: tf.random.uniform([], seed=1)), "RandomUniform"),
        (
            lambda: tf.data.Dataset.from_generator(
                lambda: iter(range(9)), output_signature=tf.TensorSpec([], tf.int64)
            ),
            "PyFunc",
        ),
    ],
    ids=["random", "python"],
)
def test_says_which_operation_keeps_state_of_its_own(make: Callable[[], tf.data.Dataset], operation: str) -> None:
    data = make()
    iterator = iter(data)
    next(iterator)
    with pytest.raises(NoIteratorStateError, match=f"^{operation}$"):
        iterator_state(iterator)


@pytest.mark.parametrize("is_in_function", [False, True], ids=["at the top", "in a function"])
def test_files_that_are_written_while_they_are_read_stay_whole(tmp_path: Path, is_in_function: bool) -> None:
    data = tf.data.Dataset.range(80)
    path = str(tmp_path)
    data = (
        tf.data.Dataset.from_tensors(0).interleave(lambda _: data.snapshot(path))
        if is_in_function
        else data.snapshot(path).shuffle(30)
    )
    for _ in range(2):
        numbers = []
        for number in (iterator := iter(data)):
            numbers.append(int(number))
            with pytest.raises(NoIteratorStateError, match=r"^SnapshotDataset$"):
                iterator_state(iterator)
        assert sorted(numbers) == [*range(80)]


def test_estimates_what_shuffles_and_caches_hold() -> None:
    rows = tf.data.Dataset.from_tensor_slices(np.zeros([1000, 25], np.float32))  # 100 bytes each
    assert estimated_state_bytes(rows.batch(10).prefetch(2)) == 0
    assert estimated_state_bytes(rows.shuffle(10).batch(10)) == 1000
    assert estimated_state_bytes(rows.shuffle(10**9).batch(10)) == 100_000
    assert estimated_state_bytes(rows.cache().shuffle(100).map(lambda row: row)) == 110_000
    assert estimated_state_bytes(rows.batch(10).zip(rows.shuffle(10))) == 1000  # type: ignore[attr-defined]
