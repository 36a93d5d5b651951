"""The store: what ranks write, the chief commits, and others find. On a file system and on an object store."""

import re
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy
import pytest
from made_snapshots import JOB, part, save, steps

from paceline.store import local_folder
from paceline.store.folder import DamagedSnapshotError
from paceline.store.manifest import SnapshotMeta
from paceline.store.shards import TENSORS_FILE, FileRecord, ShardRecord, rank_folder
from paceline.store.snapshots import SnapshotStore, Writer

META = SnapshotMeta(0, 0, 2)


@pytest.fixture(params=["local", "file://", "memory://"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param != "memory://":
        yield request.param.replace("local", "") + str(tmp_path / "run")
        return
    root = f"memory://{uuid.uuid4().hex}"
    yield root
    fsspec.filesystem("memory").rm(root, recursive=True)


@pytest.fixture
def store(place: str) -> SnapshotStore:
    return SnapshotStore(place, keep=None, writer=JOB)


def test_what_ranks_wrote_comes_back(store: SnapshotStore, place: str):
    info = save(store, 130)
    other = SnapshotStore(place)
    found = other.newest_intact()
    assert found.skipped == ()
    assert found.found == info == other.find(info.name)
    assert (info.step, info.epoch, info.world_size, info.notes) == (130, 1, 2, {"host": "h"})
    for rank in range(2):
        reader = other.open(info)
        assert reader.state(rank) == {"step": 130, "rank": rank}
        numpy.testing.assert_array_equal(reader.tensors(rank)["w"], numpy.full((2, 3), 130, "float32"))
        assert reader.headers(rank)["w"].shape == (2, 3)
    assert other.verify(info) == ()


def test_what_is_not_committed_is_no_snapshot(store: SnapshotStore):
    save(store, 10)
    store.write_shard(20, 0, part(20))
    assert steps(store) == [10]
    assert store.newest_intact().found.step == 10


def test_a_chief_learns_of_parts_through_the_directory(store: SnapshotStore):
    assert store.records(10) == ()
    first = store.write_shard(10, 0, part(10, 0))
    assert store.records(10) == (first,)
    assert store.begun() == {0}
    second = store.write_shard(10, 1, part(10, 1))
    assert store.records(10) == (first, second)
    assert store.records(10, attempt=1) == ()
    assert store.records(20) == ()
    info = store.commit(10, META, store.records(10))
    assert info.shards == (first, second)


def test_a_chief_that_commits_in_the_moment_in_which_it_sees_a_part_takes_nothing_from_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The last part's directory is renamed while its writer may still be about to synchronise it."""
    store = SnapshotStore(tmp_path, writer=Writer("4f2a"))
    first = store.write_shard(10, 0, part(10, 0))
    infos = []

    def look(*_: object) -> None:
        if not infos and len(store.records(10)) == 2:
            infos.append(None)
            infos[0] = store.commit(10, META, store.records(10))

    really = local_folder._sync_directory
    monkeypatch.setattr(local_folder, "_sync_directory", lambda directory: (look(), really(directory)))
    second = store.write_shard(10, 1, part(10, 1))
    look()
    assert infos[0].shards == (first, second)
    assert store.verify(infos[0]) == ()


@pytest.mark.parametrize("ranks", [(), (0,), (1,), (0, 0), (0, 1, 2)])
def test_a_commit_needs_each_rank_once(store: SnapshotStore, ranks: tuple[int, ...]):
    records = [store.write_shard(10, rank, part(10, rank)) for rank in (0, *ranks)]
    with pytest.raises(ValueError, match="expected 0 to 1"):
        store.commit(10, META, records[1:])
    assert steps(store) == []


def test_a_part_that_another_host_wrote_elsewhere_is_not_committed(store: SnapshotStore):
    here = store.write_shard(10, 0, part(10))
    elsewhere = ShardRecord(1, here.files)
    with pytest.raises(OSError, match=r"shared by all hosts|No such file|rank-00001"):
        store.commit(10, META, [here, elsewhere])
    grown = ShardRecord(0, tuple(FileRecord(one.name, one.size_bytes + 1, one.checksum) for one in here.files))
    with pytest.raises(OSError, match="shared by all hosts"):
        store.commit(10, SnapshotMeta(0, 0, 1), [grown])
    assert steps(store) == []


def test_an_abandoned_snapshot_is_gone(store: SnapshotStore):
    store.write_shard(10, 0, part(10))
    store.abandon(10)
    store.abandon(10)
    assert store.records(10) == ()


class ForeignError(Exception):
    """No ``OSError``, as some packages of object stores have them."""


def test_whatever_deleting_raises_stops_nobody(
    store: SnapshotStore, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(path: str) -> None:
        raise ForeignError(path)

    store.write_shard(10, 0, part(10))
    monkeypatch.setattr(store._folder, "delete", fail)
    store.abandon(10)
    assert "an unfinished snapshot of step 10" in caplog.text
    keeps_one = SnapshotStore(place, keep=1, writer=JOB)
    save(keeps_one, 20)
    monkeypatch.setattr(keeps_one.clearing, "retain", lambda _: fail("retain"))
    assert save(keeps_one, 30).step == 30
    assert "old snapshots in" in caplog.text
    assert steps(SnapshotStore(place)) == [30, 20]


def test_the_same_step_again_is_newer(store: SnapshotStore, place: str):
    """After a restart, or at the end of an epoch: whatever the clock says."""
    stopped_clock = SnapshotStore(place, keep=None, writer=Writer("job-a", 2), clock=lambda: 5.0)
    first = save(store, 10)
    second = save(stopped_clock, 10)
    third = save(stopped_clock, 10, attempt=1)
    assert len({first.name, second.name, third.name}) == 3
    assert [entry.name for entry in store.entries()] == [third.name, second.name, first.name]
    assert store.newest_intact().found == third


def test_a_part_may_be_written_again(store: SnapshotStore):
    store.write_shard(10, 0, part(7))
    record = store.write_shard(10, 0, part(10))
    info = store.commit(10, SnapshotMeta(0, 0, 1), [record])
    assert store.open(info).state(0) == {"step": 10, "rank": 0}
    assert store.verify(info) == ()


def test_the_newest_stay(place: str):
    store = SnapshotStore(place, keep=2, writer=JOB)
    for step in (10, 20, 30, 40):
        save(store, step)
    assert steps(store) == [40, 30]


def test_four_ranks_write_at_once(store: SnapshotStore):
    gate = threading.Barrier(4)
    store.write_shard(10, 0, part(10))  # the others begin when the chief has

    def write(rank: int) -> ShardRecord:
        gate.wait(30)
        return store.write_shard(10, rank, part(10, rank))

    with ThreadPoolExecutor(4) as pool:
        records = [*pool.map(write, range(4))]
    info = store.commit(10, SnapshotMeta(0, 0, 4), records)
    assert store.verify(info) == ()
    assert [store.open(info).state(rank)["rank"] for rank in range(4)] == [0, 1, 2, 3]


def test_a_dry_run_deletes_nothing(store: SnapshotStore):
    names = [save(store, step).name for step in (10, 20, 30)][::-1]
    would = store.prune(1, dry_run=True)
    assert (would.kept, would.removed) == ((names[0],), (names[1], names[2]))
    assert steps(store) == [30, 20, 10]
    assert store.prune(1) == would
    assert steps(store) == [30]


def test_hosts_see_the_probe_or_do_not(store: SnapshotStore, place: str, tmp_path: Path):
    store.write_probe("t1")
    assert SnapshotStore(place).sees_probe("t1")
    assert not SnapshotStore(place).sees_probe("t2")
    assert not SnapshotStore(tmp_path / "elsewhere").sees_probe("t1")
    store.remove_probe("t1")
    assert not store.sees_probe("t1")
    store.write_probe("t3")  # what the fixture removes


def test_other_files_in_the_directory_are_no_snapshots(tmp_path: Path):
    for name in ("notes.txt", "step-x", "step-1", "checkpoint"):
        (tmp_path / name).mkdir()
    assert SnapshotStore(tmp_path).entries() == ()
    assert SnapshotStore(tmp_path / "nothing").newest_intact().found is None


def test_wrong_arguments_are_refused(store: SnapshotStore, tmp_path: Path):
    info = save(store, 10)
    with pytest.raises(ValueError, match="expected 0 to 1"):
        store.open(info).state(2)
    with pytest.raises(DamagedSnapshotError, match="name of a snapshot"):
        store.find("../elsewhere")
    with pytest.raises(DamagedSnapshotError, match="missing"):
        store.find("step-000000000099")
    with pytest.raises(ValueError, match="a number from 1 on"):
        SnapshotStore(tmp_path, keep=0)
    for job in ("", "a/b", "x" * 65):
        with pytest.raises(ValueError, match=re.escape(repr(job))):
            Writer(job)


def test_retention_that_fails_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    store = SnapshotStore(tmp_path, keep=1, writer=JOB)
    save(store, 10)

    def refuse(path: str) -> None:
        if path.startswith("step-"):
            raise PermissionError(13, "not yours", path)

    monkeypatch.setattr(store._folder, "delete", refuse)
    assert save(store, 20).step == 20
    assert "the old snapshot " in caplog.text


def test_one_that_was_found_to_be_damaged_does_not_count_among_the_newest(tmp_path: Path):
    """It was judged by its size at each commit: an older one, which was intact, was deleted in its place."""
    store = SnapshotStore(tmp_path, keep=None, writer=JOB)
    for step in (20, 30):
        save(store, step)
    content = bytearray((path := tmp_path / "step-000000000030" / rank_folder(1) / TENSORS_FILE).read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    again = SnapshotStore(tmp_path, keep=2, writer=Writer("job-b", 1))
    found = again.newest_intact().found
    assert found is not None
    assert found.step == 20
    save(again, 10)  # a `fit` that is trained again
    assert steps(again) == [30, 20, 10]
    save(again, 40)
    assert steps(again) == [40, 30, 20]
