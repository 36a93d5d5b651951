"""Snapshots that not all ranks can write do not hold up those that they can."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.comm.threads import thread_group
from paceline.resilience.keeper import Keeper
from paceline.resilience.kept_memory import Memory
from paceline.store.manifest import SnapshotMeta
from paceline.store.parts import Part, PartRecord

LIMIT_SECONDS = 20.0


@contextmanager
def keepers(directory: Path, size: int) -> Iterator[list[Keeper]]:
    """One for each rank, opened."""
    identity = SimpleNamespace(job_id="job", generation=1, seed=7)
    worlds: list[Any] = [
        SimpleNamespace(identity=identity, rank=one.rank, size=size, communicator=one) for one in thread_group(size)
    ]
    all_of_them = [Keeper(str(directory), world, keep=3) for world in worlds]
    threads = [threading.Thread(target=keeper.open) for keeper in all_of_them]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    yield all_of_them
    for keeper in all_of_them:
        keeper.close()


def keep(keeper: Keeper, step: int) -> None:
    keeper.keep(
        step, SnapshotMeta(0, 0, 2), lambda memory: Part({"w": memory.copy("w", np.full(4, step))}, {"step": step})
    )


def test_a_rank_that_could_not_write_its_part_is_not_waited_for_once_it_writes_the_next(tmp_path: Path) -> None:
    with keepers(tmp_path / "run", 2) as (chief, other):
        keep(chief, 5)  # the other one's disk is full
        other._attempt += 1
        for keeper in (chief, other):
            keep(keeper, 10)
        assert chief.finish(LIMIT_SECONDS)
        assert chief.committed is not None
        assert chief.committed.step == 10


@pytest.mark.parametrize("is_there", [True, False])
def test_a_rank_whose_part_the_chief_has_taken_away_is_not_alarmed_unless_all_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_there: bool
) -> None:
    with keepers(tmp_path / "run", 2) as (_, other):

        def write_part(step: int, rank: int, part: Part, *, attempt: int = 0) -> PartRecord:
            if not is_there:
                shutil.rmtree(tmp_path / "run")
            raise FileNotFoundError(tmp_path / "run" / ".tmp-step")

        other._store.write_part = write_part  # type: ignore[method-assign]
        keep(other, 5)
        assert other.finish(LIMIT_SECONDS)
    assert ("NO SNAPSHOT of step 5" in caplog.text) is not is_there


class SlowDisk:
    """Holds up each part until it is told to go on; what was in the part then is told by its step."""

    def __init__(self, keeper: Keeper) -> None:
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.seen: dict[int, list[float]] = {}
        self._write_part = keeper._store.write_part
        keeper._store.write_part = self.write_part  # type: ignore[method-assign]

    def write_part(self, step: int, rank: int, part: Part, *, attempt: int = 0) -> PartRecord:
        self.begun.release()
        assert self.go.acquire(timeout=LIMIT_SECONDS)
        self.seen[step] = part.tensors["w"].tolist()
        return self._write_part(step, rank, part, attempt=attempt)


def test_a_slow_disk_costs_snapshots_but_changes_none_and_takes_no_third_memory(tmp_path: Path) -> None:
    with keepers(tmp_path / "run", 1) as [keeper]:
        disk = SlowDisk(keeper)
        weights = np.zeros(4)
        places: list[Any] = []

        def copy(memory: Memory) -> Part:
            places.append(memory.copy("w", weights))
            return Part({"w": places[-1]}, {})

        for step in range(1, 6):
            weights[...] = step  # as a training does: in its place
            keeper.keep(step, SnapshotMeta(0, 0, 1), copy)
            if step == 1:
                assert disk.begun.acquire(timeout=LIMIT_SECONDS)
        weights[...] = 6
        disk.go.release(2)
        assert keeper.finish(LIMIT_SECONDS)
        assert disk.seen == {1: [1.0] * 4, 5: [5.0] * 4}
        assert len({id(place) for place in places}) == 2
        assert keeper.committed is not None
        np.testing.assert_array_equal(keeper.reader(keeper.committed).tensors(0)["w"], np.full(4, 5.0))


def test_a_disk_that_is_in_time_takes_one_memory_until_it_is_freed(tmp_path: Path) -> None:
    places: list[Any] = []

    def copy(memory: Memory) -> Part:
        places.append(memory.copy("w", np.ones(4)))
        return Part({"w": places[-1]}, {})

    with keepers(tmp_path / "run", 1) as [keeper]:
        for step in (1, 2, 3):
            keeper.keep(step, SnapshotMeta(0, 0, 1), copy)
            assert keeper.finish(LIMIT_SECONDS)
            if step == 2:
                keeper.free_memory()
    assert places[0] is places[1]
    assert places[2] is not places[1]
