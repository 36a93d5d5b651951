"""FILE and HINT of `AutoShardPolicy`: TensorFlow divides the data, and each rank reads its part only."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import paceline.data
from paceline.data.own_rows.local_batches import local_batches
from paceline.errors import ConfigurationError
from paceline.seams.install import install_with_keras

install_with_keras()  # shuffles must go through TensorFlow's rewriting as they are then

_HINT = tf.data.experimental.SHARD_HINT


def _rows(dataset: Any, rank: int, size: int) -> list[list[int]]:
    return [[int(row) for row in batch.numpy()] for batch in local_batches(dataset, rank, size)]


def test_files_are_dealt_to_the_ranks(tmp_path: Path) -> None:
    for number in range(5):
        with tf.io.TFRecordWriter(str(tmp_path / f"{number}.tfrecord")) as writer:
            for row in range(4):
                writer.write(str(10 * number + row).encode())

    def build() -> Any:
        tf.random.set_seed(3)
        files = tf.data.Dataset.list_files(str(tmp_path / "*"))
        rows = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=2).shuffle(9)
        return paceline.data.shard(rows.batch(6), "file")

    parts = [_rows(build(), rank, 2) for rank in range(2)]
    files = [{row // 10 for batch in part for row in batch} for part in parts]
    assert sorted(map(len, files)) == [2, 3]
    assert not files[0] & files[1]
    assert sorted(row for part in parts for batch in part for row in batch) == [
        10 * number + row for number in range(5) for row in range(4)
    ]
    assert {len(batch) for part in parts for batch in part[:-1]} == {3}
    assert sorted(row for batch in _rows(build(), 0, 1) for row in batch) == sorted(
        row for part in parts for batch in part for row in batch
    )


@pytest.mark.parametrize("size", [1, 2])
def test_a_hint_says_where_to_divide(size: int) -> None:
    dataset = paceline.data.shard(tf.data.Dataset.range(12).shard(_HINT, _HINT).map(lambda row: -row).batch(4), "hint")
    for rank in range(size):
        own = [-row for row in range(rank, 12, size)]
        share = 4 // size
        assert _rows(dataset, rank, size) == [own[begin : begin + share] for begin in range(0, len(own), share)]


@pytest.mark.parametrize(
    ("policy", "said"), [("file", "finds no files in it"), ("hint", "has no place for the shards")]
)
def test_what_cannot_be_divided_so_is_refused(policy: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        local_batches(paceline.data.shard(tf.data.Dataset.range(12).batch(4), policy), 0, 2)


def test_policies_by_name() -> None:
    dataset = tf.data.Dataset.range(4).batch(4)
    assert [_rows(paceline.data.shard(dataset, policy), 1, 2) for policy in ("auto", "data", "off")] == [
        [[2, 3]],
        [[2, 3]],
        [[0, 1], [2, 3]],
    ]
    wrong: Any = "files"
    with pytest.raises(ConfigurationError, match="expected one of off, auto, file, data, hint"):
        paceline.data.shard(dataset, wrong)
