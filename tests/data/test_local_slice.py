"""Which rows a rank computes: every row once, in order, shared out evenly or by shares."""

from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.batch_rows import local_slice, slice_by

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


_SHARES = st.lists(st.integers(0, 999_999), min_size=2, max_size=6).filter(any).map(tuple)


@given(_SHARES, _ROWS)
def test_every_row_is_in_one_slice_and_slices_are_as_large_as_shares(shares: tuple[int, ...], rows: int) -> None:
    slices = [slice_by(shares, rows, rank) for rank in range(len(shares))]
    assert slices[0][0] == 0
    assert slices[-1][1] == rows
    assert all(end == begin for (_, end), (begin, _) in pairwise(slices))
    for share, (begin, end) in zip(shares, slices, strict=True):
        assert abs(end - begin - rows * share / sum(shares)) < 1


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
@pytest.mark.parametrize("shares", [(3, 1), (600_000, 400_000), (0, 2, 5)])
def test_tensors_are_sliced_like_integers(shares: tuple[int, ...], dtype: tf.DType) -> None:
    for rank in range(len(shares)):
        expected = slice_by(shares, 4096, rank)
        by_rows = slice_by(shares, tf.constant(4096, dtype), rank)
        by_rank = slice_by(shares, 4096, tf.constant(rank, dtype))
        assert [int(edge) for edge in by_rows] == [int(edge) for edge in by_rank] == [*expected]
        assert {edge.dtype for edge in [*by_rows, *by_rank] if tf.is_tensor(edge)} == {dtype}
