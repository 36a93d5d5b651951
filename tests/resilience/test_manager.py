"""Snapshots that not all ranks can write do not hold up those that they can."""

import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.errors import ConfigurationError
from paceline.resilience.copy_buffers import CopyBuffers
from paceline.resilience.manager import SnapshotManager
from paceline.resilience.parts import Captured, Layout
from paceline.resilience.usable_snapshots import ENDS_FIT
from paceline.store.manifest import SnapshotInfo, SnapshotMeta
from paceline.store.shards import TENSORS_FILE, Shard, ShardRecord, rank_folder
from paceline.store.snapshots import SnapshotStore
from thread_groups import thread_groups

LIMIT_SECONDS = 120.0


@pytest.fixture(autouse=True)
def _log_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager sends it to stderr where nobody has said otherwise, and past pytest."""
    logger = logging.getLogger("paceline")
    monkeypatch.setattr(logger, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(logger, "propagate", True)


def on_all(calls: list[Callable[[], Any]]) -> list[Any]:
    """What each call gives or raises, all at once."""
    results: list[Any] = [None] * len(calls)

    def run(rank: int) -> None:
        try:
            results[rank] = calls[rank]()
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    return results


class OneOfWorld(SimpleNamespace):
    """What a manager needs of a `World`; like it, equal to itself alone."""

    __hash__ = object.__hash__


def worlds_of(size: int) -> list[Any]:
    identity = SimpleNamespace(job_id="job", generation=1, seed=7)
    return [
        OneOfWorld(identity=identity, rank=one.rank, is_chief=one.rank == 0, size=size, group=one, data=one)
        for one in thread_groups(size)
    ]


def manager_of(directory: Path, world: Any) -> SnapshotManager:
    return SnapshotManager(str(directory), world, Layout(world.rank, (tuple(range(world.size)),)), keep=3)


@contextmanager
def managers(directory: Path, size: int) -> Iterator[list[SnapshotManager]]:
    """One for each rank, opened."""
    all_of_them = [manager_of(directory, world) for world in worlds_of(size)]
    on_all([manager.open for manager in all_of_them])
    yield all_of_them
    for manager in all_of_them:
        manager.close()


def keep(managers: Sequence[SnapshotManager], step: int, **notes: object) -> None:
    """Each takes a snapshot of this step."""

    def take(manager: SnapshotManager) -> None:
        captured = Captured({"step": step}, {"w": np.full(4, step)})
        manager.take(step, SnapshotMeta(0, step, len(managers), notes), captured)

    assert on_all([lambda one=one: take(one) for one in managers]) == [None] * len(managers)


def settle(managers: Sequence[SnapshotManager]) -> None:
    assert on_all([lambda one=one: one.settle(LIMIT_SECONDS) for one in managers]) == [True] * len(managers)


def failing(manager: SnapshotManager, error: OSError) -> Any:
    """Has the next part of this rank not be written; what it does then is the store's."""
    write_shard = manager._store.write_shard

    def fail(*_: Any, **__: Any) -> ShardRecord:
        manager._store.write_shard = write_shard  # type: ignore[method-assign]
        raise error

    manager._store.write_shard = fail  # type: ignore[method-assign]


def unfinished(directory: Path) -> list[str]:
    return [path.name for path in directory.glob(".tmp-*")]


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_rank_that_cannot_write_its_part_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with managers(tmp_path / "run", 2) as (chief, other):
        failing(other, full_disk())
        keep((chief, other), 5)
        settle((chief, other))
        assert chief.committed is None
        assert "probably because another rank could not write its shard" in caplog.text
        assert "There was no room for this rank's 32 bytes beside" in caplog.text
        assert unfinished(tmp_path / "run") == []
        commit(chief, other, 10)


def test_ranks_that_write_at_different_speeds_write_the_same_snapshots(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each rank left out what its own disk was too slow for, and took away the directories that another had begun."""
    with managers(tmp_path / "run", 2) as both:
        chief, other = both
        begun, go = threading.Event(), threading.Event()
        commit = chief._store.commit

        def slow(*arguments: Any, **options: Any) -> SnapshotInfo:
            begun.set()
            assert go.wait(LIMIT_SECONDS)
            return commit(*arguments, **options)

        chief._store.commit = slow  # type: ignore[method-assign]
        keep(both, 1)
        assert begun.wait(LIMIT_SECONDS)
        assert other.finish(LIMIT_SECONDS)
        for step in range(2, 5):
            keep(both, step)
        go.set()
        assert chief.finish(LIMIT_SECONDS)
        for step in range(5, 40):
            keep(both, step)
        settle(both)
        steps = [entry.step for entry in chief._store.entries()]
        assert (len(steps), steps[0]) == (3, 39)
        assert not {2, 3, 4} & {*steps}
        assert "NO SNAPSHOT" not in caplog.text
        assert unfinished(tmp_path / "run") == []


def test_a_chief_that_cannot_write_leaves_nothing_behind_and_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another rank's part came after the chief had given the snapshot up, and stayed on the full disk for good."""
    with managers(tmp_path / "run", 2) as both:
        for step in range(1, 25):
            failing(both[0], full_disk())
            keep(both, step)
            settle(both)
        assert unfinished(tmp_path / "run") == []
        assert caplog.text.count("NO SNAPSHOT") == 2, "the first one, and the tenth"
        assert "NO SNAPSHOT of step 10" in caplog.text
        with caplog.at_level("INFO"):
            commit(*both, 25)
        assert "written again, from step 25 on; 24 snapshots failed" in caplog.text


def test_who_leaves_is_not_told_that_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with managers(tmp_path / "run", 1) as [manager]:
        for step, is_leaving in ((5, False), (6, True)):
            failing(manager, full_disk())
            manager.settle(LIMIT_SECONDS, is_leaving=is_leaving)  # says how the job ends before anything can fail
            keep([manager], step)
            assert manager.finish(LIMIT_SECONDS)
        first, second = (record.getMessage() for record in caplog.records if "NO SNAPSHOT" in record.getMessage())
        assert "Training continues" in first
        assert "The job stops now; a new run starts from the beginning." in second


def test_a_full_disk_is_told_with_what_is_free_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was free after the failed write had been removed was told as the reason: "only" more than was needed."""
    with managers(tmp_path / "run", 1) as [manager]:
        failing(manager, full_disk())
        manager._store.clearing.free_bytes = lambda: 1_101_824  # type: ignore[method-assign]
        keep([manager], 5)
        assert manager.finish(LIMIT_SECONDS)
    assert "Now, after the failed write, 1,101,824 bytes are free. Free disk space" in caplog.text
    assert "only" not in caplog.text


def test_room_for_fewer_than_should_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was ever written again: the oldest went only after a commit, for which there was no room."""
    with managers(tmp_path / "run", 1) as [manager]:
        free = [1 << 30]
        manager._store.clearing.free_bytes = lambda: free[0]  # type: ignore[method-assign]
        for step in (1, 2, 3):
            keep([manager], step)
            assert manager.finish(LIMIT_SECONDS)
            free[0] = 0 if step >= 2 else free[0]
        assert [entry.step for entry in manager._store.entries()] == [3, 2]
        assert caplog.text.count("--snapshot-keep") == 1
        assert "step-000000000001 was removed early" in caplog.text


@pytest.mark.parametrize("is_there", [True, False])
def test_a_rank_whose_part_the_chief_has_taken_away_is_not_alarmed_unless_all_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_there: bool
) -> None:
    with managers(tmp_path / "run", 2) as (chief, other):
        write_shard = other._store.write_shard

        def late(*arguments: Any, **options: Any) -> ShardRecord:
            if is_there:
                chief._store.abandon(5, attempt=1)
            else:
                shutil.rmtree(tmp_path / "run")
            return write_shard(*arguments, **options)

        other._store.write_shard = late  # type: ignore[method-assign]
        keep((chief, other), 5)
        settle((chief, other))
    assert caplog.text.count("NO SNAPSHOT of step 5") == (1 if is_there else 2), "the chief says so in any case"


@pytest.mark.parametrize("ends_fit", [True, False])
def test_nobody_is_promised_another_snapshot_after_the_last_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ends_fit: bool
) -> None:
    with managers(tmp_path / "run", 1) as [manager]:

        def write_shard(step: int, rank: int, part: Shard, *, attempt: int = 0) -> ShardRecord:
            raise OSError("no space left on device")

        manager._store.write_shard = write_shard  # type: ignore[method-assign]
        manager.take(5, SnapshotMeta(0, 0, 1, {ENDS_FIT: ends_fit}), Captured())
        assert manager.finish(LIMIT_SECONDS)
    assert "NO SNAPSHOT of step 5" in caplog.text
    assert ("Training continues" in caplog.text) is not ends_fit


class SlowDisk:
    """Holds up each part until it is told to go on; what was in the part then is told by its step."""

    def __init__(self, manager: SnapshotManager) -> None:
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.seen: dict[int, list[float]] = {}
        self._write_part = manager._store.write_shard
        manager._store.write_shard = self.write_shard  # type: ignore[method-assign]

    def write_shard(self, step: int, rank: int, part: Shard, *, attempt: int = 0) -> ShardRecord:
        self.begun.release()
        assert self.go.acquire(timeout=LIMIT_SECONDS)
        self.seen[step] = part.tensors["w"].tolist()
        return self._write_part(step, rank, part, attempt=attempt)


class Noted(Captured):
    """Notes where it is copied to."""

    def __init__(self, places: list[Any], weights: Any) -> None:
        super().__init__(live={"w": weights})
        self._places = places

    def copied(self, buffers: CopyBuffers) -> Shard:
        shard = super().copied(buffers)
        self._places.append(shard.tensors["w"])
        return shard


def test_a_slow_disk_costs_snapshots_but_changes_none_and_takes_no_third_memory(tmp_path: Path) -> None:
    with managers(tmp_path / "run", 1) as [manager]:
        disk = SlowDisk(manager)
        weights = np.zeros(4)
        places: list[Any] = []
        for step in range(1, 6):
            weights[...] = step  # as a training does: in its place
            manager.take(step, SnapshotMeta(0, 0, 1), Noted(places, weights))
            if step == 1:
                assert disk.begun.acquire(timeout=LIMIT_SECONDS)
        weights[...] = 6
        disk.go.release(2)
        settle([manager])
        assert disk.seen == {1: [1.0] * 4, 5: [5.0] * 4}
        assert len({id(place) for place in places}) == 2
        assert manager.committed is not None
        np.testing.assert_array_equal(manager.saved(manager.committed)._tensors(0)["w"], np.full(4, 5.0))


def test_a_disk_that_is_in_time_takes_one_memory_until_it_is_freed(tmp_path: Path) -> None:
    places: list[Any] = []
    with managers(tmp_path / "run", 1) as [manager]:
        for step in (1, 2, 3):
            manager.take(step, SnapshotMeta(0, 0, 1), Noted(places, np.ones(4)))
            assert manager.finish(LIMIT_SECONDS)
            if step == 2:
                manager.free_memory()
    assert places[0] is places[1]
    assert places[2] is not places[1]


def no_room(number: int) -> Callable[[Any, str], None]:
    def write_probe(self: Any, token: str) -> None:
        raise OSError(number, os.strerror(number))

    return write_probe


def commit(chief: SnapshotManager, other: SnapshotManager, step: int, **notes: object) -> None:
    keep((chief, other), step, **notes)
    settle((chief, other))
    assert chief.committed is not None
    assert chief.committed.step == step


def test_a_full_disk_keeps_no_generation_from_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with managers(tmp_path / "run", 2) as (chief, other):
        commit(chief, other, 5)
    monkeypatch.setattr(SnapshotStore, "write_probe", no_room(errno.ENOSPC))
    with managers(tmp_path / "run", 2) as both:
        assert [manager.found and manager.found.step for manager in both] == [5, 5]
        assert "IS NOT WRITABLE" in caplog.text
        commit(both[0], both[1], 6)  # there is room again
    with managers(tmp_path / "other", 2) as both:
        assert [manager.found for manager in both] == [None, None]
        commit(both[0], both[1], 7)


def opened(*directories: Path) -> list[Any]:
    worlds = worlds_of(len(directories))
    all_of_them = list(map(manager_of, directories, worlds))
    results = on_all([manager.open for manager in all_of_them])
    all_of_them[0]._held.close()
    return results


def test_a_host_that_does_not_see_the_newest_snapshot_is_found_on_a_full_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with managers(tmp_path / "run", 2) as (chief, other):
        commit(chief, other, 5)
    (tmp_path / "another").mkdir()
    monkeypatch.setattr(SnapshotStore, "write_probe", no_room(errno.ENOSPC))
    monkeypatch.setattr("paceline.resilience.shared_directory._PROBE_SECONDS", 0.0)
    for result in opened(tmp_path / "run", tmp_path / "another"):
        assert isinstance(result, ConfigurationError)
        assert "rank(s) 1 cannot see" in str(result)


def test_a_directory_that_never_held_anything_and_cannot_be_written_is_refused_on_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SnapshotStore, "write_probe", no_room(errno.EROFS))
    for result in opened(tmp_path / "run", tmp_path / "run"):
        assert isinstance(result, ConfigurationError)
        assert "Read-only file system" in str(result)


def test_the_end_of_a_fit_that_is_damaged_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with managers(tmp_path / "run", 2) as (chief, other):
        for step in (1, 2):
            commit(chief, other, step, **{ENDS_FIT: True})
        path = tmp_path / "run" / "step-000000000001" / rank_folder(1) / TENSORS_FILE
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    with managers(tmp_path / "run", 2) as both:
        assert on_all([lambda manager=manager: manager.newest_of_fit(1, ends_fit=True) for manager in both]) == [
            None,
            None,
        ]
        assert caplog.text.count("does not match its checksum") == 1
        ends = on_all([lambda manager=manager: manager.newest_of_fit(2, ends_fit=True) for manager in both])
        assert [end.step for end in ends] == [2, 2]
