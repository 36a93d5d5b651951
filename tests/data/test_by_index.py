"""Rows that are read by their numbers: the ranks' rows in rank order are one worker's batches, each is read once."""

import itertools
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import paceline.data
from paceline.data.indexed import readings, record_files
from paceline.data.indexed.epoch_order import BLOCK_ROWS, EpochOrder
from paceline.data.indexed.index_source import reading_of
from paceline.data.indexed.record_files import RecordFiles
from paceline.data.own_rows.division import Whole, work_of
from paceline.data.own_rows.local_batches import divided, local_batches

Epoch = list[list[np.ndarray]]
_folders = itertools.count()


def write(folder: Path, rows_of_files: list[int]) -> list[Path]:
    """Files of so many records, which are numbers from 0."""
    own = folder / str(next(_folders))
    own.mkdir()
    numbers, paths = itertools.count(), []
    for number, rows in enumerate(rows_of_files):
        paths.append(own / f"{number:03}.tfrecord")
        with tf.io.TFRecordWriter(str(paths[-1])) as writer:
            for _ in range(rows):
                writer.write(b"%05d" % next(numbers))
    return paths


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


def read(dataset: Any, epochs: int, first: int = 0) -> list[Epoch]:
    """Some epochs, as the next ones of a process that has read `first` before."""
    reading = [[number, first] for number in range(readings._shared.num_sources)]
    readings.set_next_epochs(reading)
    options = tf.data.Options()
    options.autotune.enabled = False  # whoever frees an iterator waits for its thread
    dataset = dataset.with_options(options)
    return [[[leaf.numpy() for leaf in tf.nest.flatten(batch)] for batch in dataset] for _ in range(epochs)]


def assert_same(some: list[Epoch], others: list[Epoch]) -> None:
    assert [len(epoch) for epoch in some] == [len(epoch) for epoch in others]
    for batch, other in zip(itertools.chain(*some), itertools.chain(*others), strict=True):
        for leaf, expected in zip(batch, other, strict=True):
            np.testing.assert_array_equal(leaf, expected, strict=True)


def together(of_ranks: list[list[Epoch]]) -> list[Epoch]:
    """The batches of each epoch whose rows are those of the ranks."""
    return [
        [
            [np.concatenate(leaves) for leaves in zip(*batches, strict=True)]
            for batches in zip(*(rank[epoch] for rank in of_ranks), strict=True)
        ]
        for epoch in range(len(of_ranks[0]))
    ]


class Counted:
    """Rows that count how often they are asked for."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.num_asked = 0

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> Any:
        assert 0 <= row < self._rows
        self.num_asked += 1
        return {"text": f"row {row}", "pair": (np.full([2, 3], row, np.float32), row)}


def parse(record: Any, seed: Any) -> Any:
    return tf.strings.to_number(record, tf.int64), {"noise": tf.random.stateless_normal([2], seed)}


def of_unknown_shape(record: Any) -> Any:
    return tf.io.decode_raw(record, tf.uint8)


SHUFFLES = st.sampled_from([False, True, "blocks"])


@settings(deadline=None, max_examples=12, phases=[Phase.explicit, Phase.generate])  # an example takes a second
@given(
    size=st.integers(1, 4),
    num_files=st.sampled_from([1, 3, 100]),
    rows=st.integers(1, 60),
    batch_size=st.integers(1, 17),
    drop_remainder=st.booleans(),
    shuffle=SHUFFLES,
    parse=st.sampled_from([parse, of_unknown_shape, None]),
    behind=st.sampled_from(["nothing", "maps", "repeat", "take", "element-wise"]),
    call_bytes=st.sampled_from([1, 100, record_files._CALL_BYTES]),
    drawn=st.randoms(use_true_random=False),
)
def test_ranks_rows_of_records_are_one_workers(
    folder: Path,
    size: int,
    num_files: int,
    rows: int,
    batch_size: int,
    drop_remainder: bool,
    shuffle: Any,
    parse: Any,
    behind: str,
    call_bytes: int,
    drawn: Any,
) -> None:
    cuts = sorted(drawn.randint(0, rows) for _ in range(num_files - 1))
    files = write(folder, [end - begin for begin, end in itertools.pairwise([0, *cuts, rows])])
    stages: dict[str, Callable[[Any], Any]] = {
        "nothing": lambda dataset: dataset,
        "maps": lambda dataset: dataset.map(lambda *row: (row, row[0])).map(lambda row, _: row).prefetch(1),
        "repeat": lambda dataset: dataset.repeat(3),
        "take": lambda dataset: dataset.skip(1).repeat(2).take(5),
        "element-wise": lambda dataset: dataset.map(paceline.data.element_wise(lambda *row: row[0]), 2),
    }

    def build() -> Any:
        options = {"shuffle": shuffle, "seed": 5, "drop_remainder": drop_remainder}
        return stages[behind](paceline.data.records(files, parse, batch_size, **options))

    one = build()
    assert not isinstance(divided(one), Whole)
    whole = read(one, 2)
    assert len(whole[0]) == int(one.cardinality())
    with mock.patch.object(record_files, "_CALL_BYTES", call_bytes):  # how many batches are read at once
        locals_ = [local_batches(build(), rank, size, division=divided(build())) for rank in range(size)]
        assert_same(together([read(local, 2) for local in locals_]), whole)
    wide = [local_batches(build(), rank, size, division=Whole()) for rank in range(size)]
    for local, other in zip(locals_, wide, strict=True):
        assert local.element_spec == other.element_spec


@settings(deadline=None, max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(
    size=st.integers(1, 4),
    rows=st.integers(1, 60),
    batch_size=st.integers(1, 17),
    drop_remainder=st.booleans(),
    shuffle=SHUFFLES,
)
def test_rows_are_one_workers_and_each_is_asked_for_once(
    size: int, rows: int, batch_size: int, drop_remainder: bool, shuffle: Any
) -> None:
    options = {"shuffle": shuffle, "drop_remainder": drop_remainder}
    whole = read(paceline.data.rows(Counted(rows), batch_size, **options), 3)
    sources = [Counted(rows) for _ in range(size)]
    builds = [paceline.data.rows(source, batch_size, **options) for source in sources]
    before = sum(source.num_asked for source in sources)
    assert before == 2 * size  # the first and the last, for their shapes
    ranks = [read(local_batches(one, rank, size, division=divided(one)), 3) for rank, one in enumerate(builds)]
    assert_same(together(ranks), whole)
    used = rows // batch_size * batch_size if drop_remainder else rows
    assert sum(source.num_asked for source in sources) - before == 3 * used
    for epoch in whole:
        numbers = [int(number) for batch in epoch for number in batch[1]]
        assert len(set(numbers)) == used
        assert shuffle or numbers == list(range(used))


@settings(deadline=None)
@given(rows=st.integers(0, 3 * BLOCK_ROWS), shuffle=SHUFFLES, seed=st.integers(), epoch=st.integers(0, 1 << 40))
def test_an_order_has_each_row_once_wherever_it_is_asked_for(rows: int, shuffle: Any, seed: int, epoch: int) -> None:
    order = EpochOrder(rows, shuffle, seed)
    found = order.rows(epoch, 0, rows)
    assert sorted(found.tolist()) == list(range(rows))
    parts = [order.rows(epoch, begin, min(begin + 7, rows)) for begin in range(0, rows, 7)]
    assert np.concatenate([*parts, found[:0]]).tolist() == found.tolist()


def test_each_row_comes_to_each_position_equally_often() -> None:
    counts = np.zeros([10, 10])
    for epoch in range(2000):
        counts[np.arange(10), EpochOrder(10, True, 1).rows(epoch, 0, 10)] += 1
    assert ((counts - 200) ** 2 / 200).sum() < 140  # chi square of 81 degrees: beyond by chance once in 20,000


def test_orders_go_on_beyond_a_chunk_and_blocks_stay_together() -> None:
    rows = 10_000
    shuffled = EpochOrder(rows, True, 0).rows(3, 0, rows)
    assert sorted(shuffled.tolist()) == list(range(rows))
    assert abs(np.corrcoef(shuffled[:-1], shuffled[1:])[0, 1]) < 0.05
    blocks = EpochOrder(rows, "blocks", 0).rows(3, 0, rows)
    assert sorted(blocks.tolist()) == list(range(rows))
    assert (np.diff(blocks) == 1).mean() > 0.99
    assert blocks.tolist() != EpochOrder(rows, "blocks", 0).rows(4, 0, rows).tolist()


@pytest.mark.parametrize("repeats", [None, 3, -1])
@pytest.mark.parametrize("size", [1, 3])
def test_a_position_is_an_epoch_and_a_number_of_batches(size: int, repeats: int | None) -> None:
    def local(rank: int) -> Any:
        data = paceline.data.rows(np.arange(20), 6, shuffle=True)
        data = data if repeats is None else data.repeat(repeats)
        return local_batches(data, rank, size, division=divided(data))

    for rank in range(size):
        wanted = 4 if repeats is None else 12
        whole = [batch.numpy().tolist() for batch in local(rank).take(wanted)]
        for begun in (0, 1, 3, 4) if repeats is None else (5, 8, 11):
            again = local(rank)
            reading = reading_of(again)
            assert reading is not None
            reading.begin_at(begun)
            assert [batch.numpy().tolist() for batch in again.take(wanted - begun)] == whole[begun:]


def test_a_position_after_a_million_steps_is_reached_at_once() -> None:
    data = paceline.data.rows(range(64_000_000), 64, shuffle=True).repeat()
    begin = time.process_time()
    local = local_batches(data, 1, 2, division=divided(data))
    reading = reading_of(local)
    assert reading is not None
    reading.begin_at(1_000_005)
    batch = next(iter(local)).numpy().tolist()
    assert time.process_time() - begin < 0.5
    assert batch == EpochOrder(64_000_000, True, 0).rows(1, 5 * 64 + 32, 6 * 64).tolist()


def test_how_far_tensorflow_reads_ahead_does_not_count() -> None:
    data = paceline.data.rows(np.arange(4), 2, shuffle=True).repeat()
    local = local_batches(data, 0, 2, division=divided(data))
    reading = reading_of(local)
    assert reading is not None
    number = readings._shared.num_sources - 1
    reading.new_iterator()
    items = iter(local)
    for asked in range(1, 6):  # of epochs 0, 0, 1, 1, 2
        reading.ask_for(asked)
        next(items)
        assert dict(readings.next_epochs())[number] == (asked + 1) // 2


def test_a_map_of_whole_batches_is_named() -> None:
    data = paceline.data.rows(np.arange(4.0), 2)
    found = divided(data.map(tf.reduce_sum))
    assert isinstance(found, Whole)
    assert "every rank reads all rows, as map `reduce_sum` behind them takes whole batches" in work_of(found)
    assert work_of(divided(data)) == "each rank reads and computes its rows of each batch, by index (rows)"
    cached = work_of(divided(data.cache()))
    assert "as the stage `cache` is behind them" in cached
    assert "element_wise" not in cached  # no function that could be marked


@pytest.fixture
def damaged(folder: Path) -> Callable[[Callable[[bytes], bytes]], Path]:
    def damage(change: Callable[[bytes], bytes]) -> Path:
        _, path = write(folder, [3, 4])
        path.write_bytes(change(path.read_bytes()))
        return path

    return damage


_RECORD = 8 + 4 + 5 + 4


@pytest.mark.parametrize(
    ("change", "record", "num_left_out", "told"),
    [
        (lambda data: data[: 2 * _RECORD + 5], 2, 1, "ends behind the file"),
        (lambda data: data[: 4 * _RECORD - 1], 3, 1, "ends behind the file"),
        (lambda data: data[:_RECORD] + b"\7" + data[_RECORD + 1 :], 1, 3, "check sum"),
        (lambda data: data[:_RECORD] + b"\xff" * 8 + data[_RECORD + 8 :], 1, 3, "check sum"),
    ],
    ids=["header", "data", "length", "endless"],
)
def test_a_damaged_record_is_named_or_skipped(
    damaged: Any, change: Any, record: int, num_left_out: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = damaged(change)
    other = path.with_name("000.tfrecord")
    with pytest.raises(ValueError, match=rf"{path}, record {record} .* offset {record * _RECORD}: .*{told}"):
        paceline.data.records([other, path], None, 2)
    with caplog.at_level(logging.WARNING):
        data = paceline.data.records([other, path], None, 100, on_error="skip")
    left_out = path.stat().st_size - record * _RECORD
    assert "1 of 2 files are damaged" in caplog.text
    assert f"at least {num_left_out} records ({left_out} bytes)" in caplog.text
    [batch] = list(data)
    assert batch.numpy().tolist() == [b"%05d" % row for row in range(3 + record)]


def _with_flipped_bytes(data: bytes) -> bytes:
    at = 2 * _RECORD + 12
    return data[:at] + bytes(255 - byte for byte in data[at : at + 4]) + data[at + 4 :]


@pytest.mark.parametrize("shuffle", [False, True])
def test_damaged_data_are_named_or_skipped(damaged: Any, shuffle: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Check sums of data were never compared: training went on with what four flipped bytes had made of a record."""
    path = damaged(_with_flipped_bytes)
    files = [path.with_name("000.tfrecord"), path]
    told = rf"{path}, record 2 \(from 0\) at offset {2 * _RECORD}: the check sum of its data is wrong\. .*on_error="
    for check_sums in ("once", "always"):
        data = paceline.data.records(files, None, 2, shuffle=shuffle, check_sums=check_sums)
        for _ in range(2):  # what is damaged is not taken for checked
            with pytest.raises(tf.errors.OpError, match=told):
                list(data)
    assert sum(len(batch) for batch in paceline.data.records(files, None, 2, check_sums="never")) == 7
    with caplog.at_level(logging.WARNING):
        data = paceline.data.records(files, None, 100, on_error="skip")
    assert f"the data of 1 of 7 records are damaged, and left out: {path}, record 2" in caplog.text
    [batch] = list(data)
    assert batch.numpy().tolist() == [b"%05d" % row for row in range(7) if row != 5]


def test_a_record_is_checked_when_it_is_first_read_or_always(damaged: Any) -> None:
    path = damaged(lambda data: data)
    data = {name: paceline.data.records(path, None, 2, check_sums=name) for name in ("once", "always")}
    assert all(len(list(one)) == 2 for one in data.values())
    found, content = path.stat(), path.read_bytes()
    path.write_bytes(_with_flipped_bytes(content))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))  # as a disk that fails, which tells nobody
    assert len(list(data["once"])) == 2
    with pytest.raises(tf.errors.OpError, match=r"record 2 .* check sum of its data is wrong"):
        list(data["always"])


def test_a_large_record_is_checked(folder: Path) -> None:
    path = folder / "large.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(bytes(100_000))
        writer.write(bytes(200_000))
    [first, second] = [batch.numpy()[0] for batch in paceline.data.records(path, None, 1)]
    assert (len(first), len(second)) == (100_000, 200_000)
    content = bytearray(path.read_bytes())
    content[250_000] = 1
    path.write_bytes(content)
    with pytest.raises(tf.errors.OpError, match=r"record 1 .* at offset 100016: the check sum"):
        list(paceline.data.records(path, None, 1))


def test_files_that_cannot_be_read_by_index_are_refused(damaged: Any, folder: Path) -> None:
    with pytest.raises(ValueError, match="usually no TFRecord file"):
        paceline.data.records(Path(__file__), None, 2)
    with pytest.raises(ValueError, match="is a directory"):
        paceline.data.records(folder, None, 2)
    with pytest.raises(ValueError, match=r"glob.glob\(pattern\)"):
        paceline.data.records(folder / "*.tfrecord", None, 2)
    with pytest.raises(ValueError, match="in the 0 files"):
        paceline.data.records(folder.glob("*.nothing"), None, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"nowhere.tfrecord cannot be read: No such file"):
        paceline.data.records(folder / "nowhere.tfrecord", None, 2)
    with pytest.raises(ValueError, match="no records"):
        paceline.data.records(write(folder, [0, 0]), None, 2)


def test_a_file_that_changes_is_noticed(folder: Path) -> None:
    files = write(folder, [3, 4])
    found = RecordFiles([str(path) for path in files], "raise")
    data = paceline.data.records(files, None, 2)
    assert len(list(data)) == 4
    files[1].write_bytes(files[1].read_bytes()[:50])
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{files[1]} has changed"):
        list(data)
    with pytest.raises(ValueError, match=rf"{files[1]}, at the record at offset 42 \(number 2, from 0\)"):
        found.read(np.array([0, 5]))
    os.truncate(files[1], 0)
    assert len(paceline.data.records(files, None, 1)) == 3  # the index is made again


def test_what_a_source_says_of_itself_knows_files_and_order(folder: Path) -> None:
    def facts(files: Any, **options: Any) -> Any:
        found = divided(paceline.data.records(files, None, 2, **options))
        return found.source.facts  # type: ignore[union-attr]

    files = write(folder, [3, 4, 3])
    assert facts(files) == facts(write(folder, [3, 4, 3]))  # in another directory
    assert facts(files) != facts(write(folder, [3, 3, 4]))
    assert facts(files) != facts([files[0], files[2], files[1]])
    assert facts(files) != facts(files, seed=1)
    assert facts(files) != facts(files, shuffle=True)


class Wrong(Counted):
    """Says that it has more rows than it has, or has a row of another shape."""

    def __getitem__(self, row: int) -> Any:
        if row == 7:
            raise KeyError(f"no {row}")
        return np.zeros(4 if row == 3 else 5)


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return np.zeros([2, 3])


def test_rows_that_are_not_there_or_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"len\(source\) is 8, but source\[7\] raises KeyError"):
        paceline.data.rows(Wrong(8), 2)
    with pytest.raises(ValueError, match="has no rows"):
        paceline.data.rows([], 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"row 3 of the source is float64 \(4,\), but row 0"):
        list(paceline.data.rows(Wrong(6), 2))
    with pytest.raises(ValueError, match=r"row 1 of the source is int64 \(\), but row 0 is int8"):
        paceline.data.rows([np.int8(1), np.int64(1000)], 2)  # would be -24
    with pytest.raises(ValueError, match=r"source\[0\] raises KeyError"):
        paceline.data.rows({"x": 1}, 2)
    with pytest.raises(ValueError, match="received a tuple of 2: if these are columns"):
        paceline.data.rows((np.zeros(2), np.zeros(2)), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"PyDataset \(Batches\) are batches, not rows"):
        paceline.data.rows(Batches(), 2)
    with pytest.raises(ValueError, match="received generator"):
        paceline.data.rows((row for row in range(3)), 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"shuffle": "block"}, "expected True, False or 'blocks'"),
        ({"shuffle": 1000}, "expected True, False or 'blocks'"),
        ({"on_error": "ignore"}, "expected one of 'raise', 'skip'"),
        ({"seed": None}, "expected an integer"),
        ({"batch_size": 2.0}, "expected an integer"),
        ({"batch_size": 0}, "at least one row"),
    ],
)
def test_wrong_options_are_refused(folder: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        paceline.data.records(write(folder, [1]), None, **{"batch_size": 2, **options})


def test_a_parse_that_cannot_be_exact_is_refused(folder: Path) -> None:
    files = write(folder, [2])
    with pytest.raises(ValueError, match=r"draws random numbers \(RandomUniform\).*parse\(record, seed\)"):
        paceline.data.records(files, lambda record: tf.random.uniform([]), 2)
    with pytest.raises(ValueError, match="must return dense tensors"):
        paceline.data.records(files, lambda record: tf.strings.split([record]), 2)


def test_seeds_of_rows_differ_in_each_epoch_and_belong_to_the_rows(folder: Path) -> None:
    files = write(folder, [40])
    first, second = read(paceline.data.records(files, parse, 40, shuffle=True), 2)
    other_order = read(paceline.data.records(files, parse, 7, shuffle=False), 1)[0]
    of_rows = [
        {int(row): noise.tolist() for batch in epoch for row, noise in zip(*batch, strict=True)}
        for epoch in (first, second, other_order)
    ]
    assert of_rows[0] == of_rows[2]
    assert all(of_rows[0][row] != of_rows[1][row] for row in range(40))
    assert len({tuple(noise) for noise in of_rows[0].values()}) == 40


def test_a_map_that_says_so_has_a_row_for_each_row(folder: Path) -> None:
    def parse_batch(records: Any) -> Any:
        return tf.io.decode_raw(records, tf.uint8)

    files = write(folder, [7, 4])
    data = paceline.data.records(files, None, 4)
    assert isinstance(divided(data.map(parse_batch)), Whole)
    marked = data.map(paceline.data.element_wise(parse_batch), tf.data.AUTOTUNE)
    ranks = [read(local_batches(marked, rank, 3, division=divided(marked)), 1) for rank in range(3)]
    assert_same(together(ranks), read(marked, 1))
