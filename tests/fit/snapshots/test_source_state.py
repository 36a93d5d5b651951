"""What of a data source goes into a snapshot: what training changes, if it is small or an order of rows."""

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.fit.snapshots.source_state import SourceState
from paceline.resilience.object_state import MAX_SMALL_BYTES, frozen

NUM_ROWS = MAX_SMALL_BYTES // 8 + 1


class Source:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def names_of(state: SourceState) -> set[str]:
    return {*state.encode({}, "source")["state"]}


def value_of(state: SourceState) -> Any:
    tensors: dict[str, Any] = {}
    return frozen(state.encode(tensors, "source"), tensors).value


@pytest.mark.parametrize("make", [np.arange, lambda rows: [*range(rows)], lambda rows: [*map(str, range(rows))]])
def test_a_large_order_is_kept_once_it_has_been_shuffled(make: Any) -> None:
    source = Source(order=make(NUM_ROWS), data=np.zeros((NUM_ROWS, 2)), batch=8)
    state = SourceState(source, is_chief=True)
    assert names_of(state) == set(), "what the script makes again costs nothing"
    source.order[0], source.order[5] = source.order[5], source.order[0]
    held, shuffled = value_of(state), [*source.order]
    assert held["state"].keys() == {"order"}
    rerun = Source(order=make(NUM_ROWS), data=source.data, batch=9)
    again = SourceState(rerun, is_chief=True)
    again.put_back(held)
    assert [*rerun.order] == shuffled
    assert rerun.batch == 9
    rerun.batch = 10
    assert names_of(again) == {"batch", "order"}


def test_settings_of_a_rerun_are_its_own() -> None:
    """A folder that is made for each run is not there any more; other ranks than the chief have their own."""
    source = Source(root="/tmp/run1", batch_size=32, workers=1, order=[*range(9)], epoch=0, files=["/tmp/run1/a"])
    state = SourceState(source, is_chief=True)
    random.Random(1).shuffle(source.order)
    source.epoch += 1
    held = value_of(state)
    rerun = Source(root="/tmp/run2", batch_size=64, workers=2, order=[*range(9)], epoch=0, files=["/tmp/run2/a"])
    SourceState(rerun, is_chief=True).put_back(held)
    assert vars(rerun) == {
        "root": "/tmp/run2",
        "batch_size": 64,
        "workers": 2,
        "order": source.order,
        "epoch": 1,
        "files": ["/tmp/run2/a"],
    }


@pytest.mark.parametrize("before", [None, [], np.arange(3)], ids=["none", "list", "array"])
def test_a_large_order_that_is_made_late_is_kept_at_once(before: Any) -> None:
    source = Source(order=before)
    state = SourceState(source, is_chief=True)
    source.order = np.arange(NUM_ROWS)[::-1]
    assert names_of(state) == {"order"}


def test_what_cannot_be_held_may_be_made_late(caplog: pytest.LogCaptureFixture) -> None:
    """A file that is opened, or a table that is read, when the first batch is asked for."""
    source = Source(file=None, rows=None)
    state = SourceState(source, is_chief=True)
    source.file, source.rows = Table(), np.zeros((NUM_ROWS, 2))
    assert names_of(state) == set()
    assert not caplog.records
    source.rows[0] = 1
    assert names_of(state) == set()
    [record] = caplog.records
    assert "Source.rows changes" in record.getMessage()


@pytest.mark.parametrize("is_rerun", [True, False])
def test_an_order_that_looks_as_at_first_again_is_kept_all_the_same(is_rerun: bool) -> None:
    """A rerun's has been shuffled on its way there."""
    source = Source(order=np.arange(NUM_ROWS))
    state = SourceState(source, is_chief=True)
    source.order = source.order[::-1]
    held = value_of(state)
    if is_rerun:
        source = Source(order=np.arange(NUM_ROWS))
        state = SourceState(source, is_chief=True)
        state.put_back(held)
    source.order = np.arange(NUM_ROWS)
    assert names_of(state) == {"order"}


class Table:
    """Not a value that a snapshot can hold."""


@pytest.mark.parametrize(
    "make",
    [lambda: np.random.default_rng().random((NUM_ROWS, 2)), lambda: np.array([str(np.random.random())]), Table],
    ids=["large", "texts", "object"],
)
def test_what_changes_and_cannot_be_kept_is_said_once(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    source = Source(rows=make(), model=make())
    states = [SourceState(source, is_chief=True), SourceState(source, is_chief=False)]
    for state in states:
        names_of(state)
    assert not caplog.records
    before, source.rows = source.rows, make()
    with caplog.at_level(logging.WARNING):
        for state in states:
            assert not names_of(state)
            assert not names_of(state)
    assert before is not source.rows
    [record] = caplog.records
    assert "Source.rows changes" in record.getMessage()


def test_a_file_in_memory_is_not_read(tmp_path: Path) -> None:
    np.arange(NUM_ROWS).tofile(tmp_path / "tokens")
    tokens = np.memmap(tmp_path / "tokens", np.int64, "r+")
    source = Source(tokens=tokens)
    state = SourceState(source, is_chief=True)
    tokens[0] = 7
    assert not names_of(state)


@pytest.mark.parametrize("is_window", [False, True], ids=["file", "window"])
def test_another_part_of_a_file_in_memory_is_said(
    is_window: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A rerun would read the first shard again."""

    def mapped(shard: int) -> Any:
        begin, path = (shard * 1000, tmp_path / "all") if is_window else (0, tmp_path / str(shard))
        np.zeros(NUM_ROWS + 1000).tofile(path)
        return np.memmap(path, np.int64, "r")[begin : begin + NUM_ROWS]

    source = Source(rows=mapped(0))
    state = SourceState(source, is_chief=True)
    source.rows = mapped(0)
    assert not names_of(state)
    assert not caplog.records, "the same rows, mapped again"
    source.rows = mapped(1)
    assert not names_of(state)
    [record] = caplog.records
    assert "Source.rows changes" in record.getMessage()
    assert "a memmap cannot be stored" in record.getMessage()


def test_a_copy_of_a_file_in_memory_is_a_value(tmp_path: Path) -> None:
    np.arange(NUM_ROWS).tofile(tmp_path / "order")
    source = Source(order=np.memmap(tmp_path / "order", np.int64, "r").copy())
    state = SourceState(source, is_chief=True)
    source.order[0] = 7
    assert names_of(state) == {"order"}


@pytest.mark.parametrize("num_files", [3, 100])
def test_files_that_are_shuffled_in_place_are_said(num_files: int, caplog: pytest.LogCaptureFixture) -> None:
    source = Source(files=[*map(Path, map(str, range(num_files)))])
    state = SourceState(source, is_chief=True)
    assert not names_of(state)
    assert not caplog.records
    source.files.reverse()
    assert not names_of(state)
    [record] = caplog.records
    assert "Source.files changes" in record.getMessage()
