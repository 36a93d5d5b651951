"""Which rows a rank computes: every row once, in order, shared out evenly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.batch_rows import local_slice

_ROWS = st.integers(0, 10_000)
_SIZES = st.integers(1, 64)


@given(_ROWS, _SIZES)
def test_every_row_belongs_to_one_rank_in_order(rows: int, size: int) -> None:
    slices = [local_slice(rows, rank, size) for rank in range(size)]
    assert [row for begin, end in slices for row in range(begin, end)] == list(range(rows))


@given(_ROWS, _SIZES)
def test_ranks_differ_by_one_row_at_most(rows: int, size: int) -> None:
    counts = [end - begin for begin, end in (local_slice(rows, rank, size) for rank in range(size))]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == rows


@given(_SIZES)
def test_with_fewer_rows_than_ranks_some_have_none(size: int) -> None:
    counts = [end - begin for begin, end in (local_slice(size - 1, rank, size) for rank in range(size))]
    assert counts.count(0) == 1


@given(_ROWS, _SIZES, st.data())
def test_arrays_of_integers_are_sliced_like_integers(rows: int, size: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, size - 1))
    begin, end = local_slice(np.int64(rows), rank, size)
    assert (int(begin), int(end)) == local_slice(rows, rank, size)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_slices_put_together_are_the_batch(size: int) -> None:
    batch = np.arange(26).reshape(13, 2)
    parts = [batch[slice(*local_slice(len(batch), rank, size))] for rank in range(size)]
    assert np.array_equal(np.concatenate(parts), batch)
