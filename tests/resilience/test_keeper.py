"""Snapshots that not all ranks can write do not hold up those that they can."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from paceline.comm.threads import thread_group
from paceline.resilience.keeper import Keeper
from paceline.store.manifest import SnapshotMeta
from paceline.store.parts import Part

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
