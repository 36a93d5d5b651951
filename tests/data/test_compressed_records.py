"""Compressed files are dealt whole: each row is read by one rank, and who runs out first waits for nobody."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import paceline.data
from paceline.data.faults import kept_fault_raised
from paceline.data.own_rows.local_batches import local_batches
from paceline.errors import ConfigurationError
from paceline.seams.install import install_with_keras

install_with_keras()  # shuffles must go through TensorFlow's rewriting as they are then


def write(folder: Path, compression: str, rows_of_files: list[int]) -> list[Path]:
    paths = []
    for number, rows in enumerate(rows_of_files):
        paths.append(folder / f"{number}.tfrecord.{compression}")
        with tf.io.TFRecordWriter(str(paths[-1]), tf.io.TFRecordOptions(compression_type=compression)) as writer:
            for row in range(rows):
                writer.write(b"%d" % (100 * number + row))
    return paths


def parse(record: Any) -> Any:
    return {"row": tf.strings.to_number(record, tf.int64)}


def read(data: Any, rank: int, size: int) -> list[list[int]]:
    return [batch["row"].numpy().tolist() for batch in local_batches(data, rank, size)]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("shuffle", [False, True, "blocks"])
def test_each_row_is_read_by_one_rank_from_whole_files(tmp_path: Path, compression: str, shuffle: Any) -> None:
    files = write(tmp_path, compression, [5, 1, 9, 3])
    rows = [100 * number + row for number, count in enumerate([5, 1, 9, 3]) for row in range(count)]

    def build() -> Any:
        return paceline.data.records(files, parse, 4, shuffle=shuffle, seed=5)

    one = [row for batch in read(build(), 0, 1) for row in batch]
    assert sorted(one) == rows
    assert (one == rows) is (shuffle is False)
    ranks = [build() for _ in range(2)]
    for _ in range(2):
        parts = [[row for batch in read(data, rank, 2) for row in batch] for rank, data in enumerate(ranks)]
        assert sorted(parts[0] + parts[1]) == rows
        assert not {row // 100 for row in parts[0]} & {row // 100 for row in parts[1]}
    assert all(len(batch) <= 2 for batch in read(build(), 1, 2))


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("is_compressed_twice", [False, True], ids=["the record", "the compression"])
def test_a_damaged_file_is_named(tmp_path: Path, compression: str, is_compressed_twice: bool) -> None:
    """TensorFlow's readers refuse damaged data, but do not say of which file."""
    files = write(tmp_path, compression, [5, 9])
    pack, unpack = (gzip.compress, gzip.decompress) if compression == "GZIP" else (zlib.compress, zlib.decompress)
    content = bytearray(unpack(files[1].read_bytes()))
    if is_compressed_twice:
        content = bytearray(files[1].read_bytes())
        content[len(content) // 2] ^= 255
        files[1].write_bytes(content)
    else:
        content[4 * (16 + 3) + 12] ^= 255
        files[1].write_bytes(pack(bytes(content)))
    place = r"record \d" if is_compressed_twice else rf"record 4 \(from 0\) at offset {4 * (16 + 3)}"
    with (
        pytest.raises(ValueError, match=rf"{files[1]}, {place}.*damaged\]$"),
        kept_fault_raised(),
    ):
        list(paceline.data.records(files, parse, 4))


def test_what_cannot_be_dealt_is_refused(tmp_path: Path) -> None:
    files = write(tmp_path, "GZIP", [2, 2])
    with pytest.raises(ConfigurationError, match="2 files are too few for 3 workers"):
        local_batches(paceline.data.records(files, None, 2), 0, 3)
    [other, _] = write(tmp_path, "", [2, 2])
    with pytest.raises(ValueError, match=rf"{files[0]} is compressed \(GZIP\), and {other} is not compressed"):
        paceline.data.records([*files, other], None, 2)
    with pytest.raises(ValueError, match="behind a damaged byte cannot be read"):
        paceline.data.records(files, None, 2, on_error="skip")
    with pytest.raises(ValueError, match="rows have no numbers from which seeds could follow"):
        paceline.data.records(files, lambda record, seed: record, 2)
    with pytest.raises(ConfigurationError, match=r"FILE, but it is of paceline.data.records or rows: each"):
        local_batches(paceline.data.shard(paceline.data.records(other, None, 2), "file"), 0, 2)
