"""TensorFlow's readers refuse damaged TFRecords (``corrupted record at 1234``), and do not say of which file."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from paceline.data.faults import kept_fault_raised
from paceline.data.own_rows.local_batches import local_batches

RECORDS = [random.Random(number).randbytes(30) for number in range(8)]
IN_FILE = 30 + 16
DAMAGED = 5

READERS: dict[str, Callable[[list[str], str], Any]] = {
    "names": tf.data.TFRecordDataset,
    "interleaved": lambda names, kind: tf.data.Dataset.from_tensor_slices(names).interleave(
        lambda name: tf.data.TFRecordDataset(name, kind), num_parallel_calls=2
    ),
    "listed": lambda names, kind: tf.data.TFRecordDataset(tf.data.Dataset.list_files(names, shuffle=False), kind),
}


def write(path: Path, compression: str) -> str:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in RECORDS:
            writer.write(record)
    return str(path)


def _place_in(content: bytes) -> int:
    return len(content) * DAMAGED // len(RECORDS) + 20


def cut(path: str) -> None:
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: _place_in(content)])


def flip(path: str) -> None:
    content = bytearray(Path(path).read_bytes())
    content[_place_in(content)] ^= 255
    Path(path).write_bytes(content)


def read(dataset: Any, size: int) -> None:
    with kept_fault_raised():
        list(local_batches(dataset.map(tf.strings.length).batch(2), 0, size))


@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize(
    ("reader", "compression", "size"),
    [("names", "", 1), ("names", "GZIP", 2), ("interleaved", "", 2), ("listed", "ZLIB", 2)],
)
def test_the_damaged_file_is_named(
    tmp_path: Path, damage: Callable[[str], None], compression: str, reader: str, size: int
) -> None:
    names = [write(tmp_path / f"{number}.tfrecord", compression) for number in range(3)]
    damage(names[1])
    place = (
        r"record \d \(from 0\) at offset \d+ of what"
        if compression
        else rf"record {DAMAGED} .* offset {DAMAGED * IN_FILE}:"
    )
    with pytest.raises(ValueError, match=rf"^{re.escape(names[1])}, {place}.*\[record-damaged\]$"):
        read(READERS[reader](names, compression), size)


def test_of_names_that_are_computed_nothing_is_told(tmp_path: Path) -> None:
    damaged = write(tmp_path / "one.tfrecord", "")
    flip(damaged)
    names = tf.data.Dataset.from_tensor_slices(["one"]).map(lambda name: f"{tmp_path}/" + name + ".tfrecord")
    with pytest.raises(tf.errors.DataLossError, match="corrupted record"):
        read(tf.data.TFRecordDataset(names), 2)


def test_neither_undamaged_files_nor_those_of_earlier_data_are_blamed(tmp_path: Path) -> None:
    """A compressed file that is read as if it were not, behind data with a damaged file."""
    damaged = write(tmp_path / "earlier.tfrecord", "")
    flip(damaged)
    with pytest.raises(ValueError, match=r"earlier\.tfrecord, record 5"):
        read(tf.data.TFRecordDataset([damaged]), 2)
    names = [write(tmp_path / "one.tfrecord", "GZIP")]
    with pytest.raises(tf.errors.DataLossError):
        read(tf.data.TFRecordDataset(names), 2)
