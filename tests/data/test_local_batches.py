"""The ranks' batches, put together, are the batches of one worker."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.control_groups import memory_bytes
from paceline.comm.world import current_world
from paceline.data.fingerprint import FingerprintLog
from paceline.data.own_rows.local_batches import local_batches


def _together(parts: Iterator[Any]) -> Any:
    """One batch from the ranks' parts of it, in rank order."""
    leaves = zip(*(tf.nest.flatten(part) for part in parts), strict=True)
    return [_concatenated(list(same)) for same in leaves]


def _concatenated(leaves: list[Any]) -> np.ndarray:
    if isinstance(leaves[0], tf.RaggedTensor):
        return tf.concat(leaves, 0).to_tensor(-1).numpy()
    if isinstance(leaves[0], tf.SparseTensor):
        return tf.sparse.to_dense(tf.sparse.concat(0, leaves)).numpy()
    return np.concatenate([leaf.numpy() for leaf in leaves])


def _all_ranks(dataset: tf.data.Dataset, size: int) -> list[Any]:
    """The batches that the ranks of a world of `size` read, each put together again."""
    worlds = [local_batches(dataset, rank, size) for rank in range(size)]
    return [_together(parts) for parts in zip(*worlds, strict=True)]


def _assert_equal(several: list[Any], one: list[Any]) -> None:
    assert len(several) == len(one)
    for batch, expected in zip(several, one, strict=True):
        for leaf, expected_leaf in zip(batch, expected, strict=True):
            np.testing.assert_array_equal(leaf, expected_leaf)


@settings(max_examples=12, deadline=None)
@given(rows=st.integers(1, 20), batch=st.integers(1, 9), size=st.integers(2, 5))
def test_ranks_together_read_what_one_worker_reads(rows: int, batch: int, size: int) -> None:
    dataset = tf.data.Dataset.range(rows).batch(batch)
    _assert_equal(_all_ranks(dataset, size), _all_ranks(dataset, 1))


@pytest.mark.parametrize("size", [2, 3])
def test_every_kind_of_component(size: int) -> None:
    rows = 7
    dense = np.arange(rows * 6.0).reshape(rows, 3, 2)
    dataset = tf.data.Dataset.from_tensor_slices(
        (
            {
                "dense": dense,
                "ragged": tf.ragged.constant([[1] * (row % 3) for row in range(rows)]),
                "sparse": tf.sparse.from_dense(np.eye(rows)),
                "text": [f"row {row}" for row in range(rows)],
            },
            np.arange(rows),
        )
    ).batch(4)
    _assert_equal(_all_ranks(dataset, size), _all_ranks(dataset, 1))


def test_ranks_differ_by_one_row_at_most_and_may_have_none() -> None:
    dataset = tf.data.Dataset.range(5).batch(4)
    rows = [[len(batch) for batch in local_batches(dataset, rank, 3)] for rank in range(3)]
    assert rows == [[2, 1], [1, 0], [1, 0]]


def test_a_scalar_belongs_to_every_rank() -> None:
    dataset = tf.data.Dataset.from_tensors((tf.range(4), tf.constant(0.5)))
    for rank in range(2):
        [(rows, scalar)] = list(local_batches(dataset, rank, 2))
        assert rows.numpy().tolist() == [[0, 1], [2, 3]][rank]
        assert scalar == 0.5


def test_what_is_not_batched_is_refused() -> None:
    """Each rank would get all of it, and N workers would compute N times what one does."""
    dataset = tf.data.Dataset.range(4).map(lambda x: (x, x))
    with pytest.raises(ValueError, match=r"Batch the dataset first: `dataset\.batch"):
        local_batches(dataset, 1, 2)
    assert len(list(local_batches(dataset, 0, 1))) == 4


def test_elements_without_axes_that_the_script_has_shared_out_stay() -> None:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = tf.data.Dataset.range(4).with_options(options)
    assert [int(element) for element in local_batches(dataset, 1, 2)] == [0, 1, 2, 3]


def test_known_row_numbers_stay_known() -> None:
    dataset = tf.data.Dataset.range(10).batch(5, drop_remainder=True)
    assert [local_batches(dataset, rank, 2).element_spec.shape.as_list() for rank in range(2)] == [[3], [2]]
    unknown = tf.data.Dataset.range(10).batch(5)
    assert local_batches(unknown, 0, 2).element_spec.shape.as_list() == [None]


def test_the_number_of_batches_stays_known() -> None:
    dataset = tf.data.Dataset.range(10).batch(4)
    assert local_batches(dataset, 1, 2).cardinality() == 3
    assert local_batches(dataset.repeat(), 1, 2).cardinality() == tf.data.INFINITE_CARDINALITY


def test_local_batches_are_not_sliced_again() -> None:
    once = local_batches(tf.data.Dataset.range(8).batch(4), 1, 2)
    assert local_batches(once, 1, 2) is once


def test_order_is_made_deterministic_and_the_users_other_options_stay() -> None:
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = 3
    dataset = tf.data.Dataset.range(8).with_options(options).batch(4)
    made = local_batches(dataset, 0, 2).options()
    assert made.deterministic is True
    assert made.threading.private_threadpool_size == 3
    assert local_batches(dataset, 0, 1).options().deterministic is False


@pytest.mark.parametrize("logged", [False, True])
def test_the_position_can_be_saved_and_restored(tmp_path: Path, logged: bool) -> None:
    log = FingerprintLog() if logged else None
    dataset = tf.data.Dataset.range(40).shuffle(40, seed=1).batch(4)

    def fresh() -> Any:
        return iter(local_batches(dataset, 0, 2, log=log))

    iterator = fresh()
    for _ in range(3):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "cursor"))
    rest = [batch.numpy().tolist() for batch in iterator]

    restored = fresh()
    tf.train.Checkpoint(iterator=restored).read(path)
    assert [batch.numpy().tolist() for batch in restored] == rest


def test_buffers_have_the_share_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = dataclasses.replace(current_world().identity, local_world_size=4)
    monkeypatch.setattr(current_world(), "identity", identity)
    dataset, options = tf.data.Dataset.range(10).batch(4), tf.data.Options()
    assert local_batches(dataset, 0, 2).options().autotune.ram_budget == memory_bytes() // 4 // 2
    options.autotune.ram_budget = 1000
    assert local_batches(dataset.with_options(options), 0, 2).options().autotune.ram_budget == 1000


def test_batches_of_two_lengths_that_the_script_has_shared_out_are_refused() -> None:
    """The first part had all rows of the shorter component, and the others none."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    long, short = (tf.data.Dataset.range(40).batch(size) for size in (8, 3))
    own = local_batches(tf.data.Dataset.zip((long, short)).with_options(options), 0, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"rows-differ"):
        list(own)
