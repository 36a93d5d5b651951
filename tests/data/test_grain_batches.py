"""Batches of Grain that are read by index are Grain's own, and only those are that can be."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import paceline.data
from paceline.data.indexed.grain_batches import by_index
from paceline.data.own_rows.division import Whole
from paceline.data.own_rows.local_batches import divided, local_batches

grain = pytest.importorskip("grain")


def row_of(number: int) -> Any:
    return [{"x": np.full([2, 3], number, np.float32), "text": f"row {number}"}, number % 5]


def rows() -> Any:
    return grain.MapDataset.range(23).shuffle(seed=2).map(row_of)


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_batches_are_grains(drop_remainder: bool, size: int) -> None:
    batches = rows().batch(5, drop_remainder=drop_remainder)
    data = by_index(batches)
    assert not isinstance(divided(data), Whole)
    assert int(data.cardinality()) == len(batches)
    locals_ = [local_batches(data, rank, size, division=divided(data)) for rank in range(size)]
    for _ in range(2):
        for number, parts in enumerate(zip(*locals_, strict=True)):
            expected = batches[number]
            flat = [tf.nest.flatten(part) for part in parts]
            for own, one in zip(zip(*flat, strict=True), tf.nest.flatten(tuple(expected)), strict=True):
                np.testing.assert_array_equal(np.concatenate(own).astype(np.asarray(one).dtype), one)


def test_data_without_end_are_read_by_index() -> None:
    batches = rows().repeat().batch(5)
    found = [batch[1].numpy().tolist() for batch in itertools.islice(by_index(batches), 7)]
    assert found == [batches[number][1].tolist() for number in range(7)]


def doubled(batch: Any) -> Any:
    return np.stack(batch) * 2


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(3),
        grain.MapDataset.range(9),
        grain.MapDataset.range(0).batch(2),
        grain.MapDataset.range(9).batch(2).map(lambda batch: batch),
        grain.MapDataset.range(9).batch(2, batch_fn=doubled),
        grain.MapDataset.range(9).batch(2).to_iter_dataset(),
    ],
    ids=["array", "rows", "empty", "map behind", "batch_fn", "iterators"],
)
def test_other_data_stay_as_they_are(data: Any) -> None:
    assert by_index(data) is data


def test_rows_of_batches_are_refused() -> None:
    assert len(list(paceline.data.rows(rows().map(tuple), 5))) == 5
    with pytest.raises(ValueError, match=r"row 0 of the source has a list of dict"):
        paceline.data.rows(rows(), 5)
    with pytest.raises(ValueError, match=r"are batches, not rows: leave out its .batch"):
        paceline.data.rows(rows().batch(5), 5)
