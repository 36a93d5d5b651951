"""Whether the first axis of a batch is that of its rows: nothing that is a batch is taken for anything else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.batch_rows import differing_rows, has_batch_operation, is_slices_of_arrays
from paceline.data.own_rows.local_batches import local_batches

_SIZES = st.one_of(st.none(), st.integers(0, 9))


@given(st.lists(_SIZES, max_size=4))
def test_components_differ_only_if_two_known_sizes_do(sizes: list[int | None]) -> None:
    told = differing_rows([(f"data[{at}]", (size, 3)) for at, size in enumerate(sizes)])
    assert (told is not None) == (len(set(sizes) - {None}) > 1)


def _slices() -> Any:
    return tf.data.Dataset.from_tensor_slices(np.arange(12.0).reshape(6, 2))


@pytest.mark.parametrize(
    ("make_dataset", "may_be_batched", "is_never"),
    [
        (lambda: _slices().map(lambda row: row + 1).shuffle(2).repeat().take(4).prefetch(1), False, True),
        (lambda: _slices().batch(2).map(lambda rows: rows + 1), True, False),
        (lambda: _slices().padded_batch(2).cache(), True, False),
        (lambda: _slices().ragged_batch(2), True, False),
        (lambda: _slices().batch(2, num_parallel_calls=2), True, False),
        (lambda: _slices().window(2).flat_map(lambda rows: rows.batch(2)), True, False),
        (lambda: _slices().bucket_by_sequence_length(lambda row: 2, [5], [2, 2]), True, False),
        (lambda: tf.data.Dataset.sample_from_datasets([_slices().batch(2)] * 2, seed=1), True, False),
        (lambda: tf.data.Dataset.from_generator(list, output_signature=tf.TensorSpec((None, 2))), False, False),
        (lambda: tf.data.Dataset.range(2).interleave(lambda _: _slices().batch(2)), False, False),
        (lambda: _slices().batch(2).unbatch(), True, False),
    ],
)
def test_operations_that_put_elements_together_are_seen(
    make_dataset: Callable[[], Any], may_be_batched: bool, is_never: bool
) -> None:
    dataset = make_dataset()
    assert (has_batch_operation(dataset), is_slices_of_arrays(dataset)) == (may_be_batched, is_never)


def test_components_of_any_kind_are_counted_by_rows() -> None:
    x = np.arange(12.0).reshape(6, 2)
    ragged, sparse = tf.RaggedTensor.from_row_lengths(np.arange(9), [1, 2, 0, 3, 2, 1]), tf.sparse.from_dense(x)
    alike = tf.data.Dataset.from_tensor_slices({"x": x, "ragged": ragged, "sparse": sparse}).batch(4)
    with_scalar = alike.map(lambda batch: (batch, 0.5))
    assert len(list(local_batches(with_scalar, 1, 3))) == 2
    for name in ("x", "ragged", "sparse"):
        cut = {"x": lambda x: x[:1], "ragged": lambda x: x[:1], "sparse": lambda x: tf.sparse.slice(x, [0, 0], [1, 2])}
        differing = alike.map(lambda batch, name=name, cut=cut[name]: {**batch, name: cut(batch[name])})
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"rows-differ"):
            list(local_batches(differing, 0, 2))
