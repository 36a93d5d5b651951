"""Small snapshots for tests."""

import numpy

from paceline.store.manifest import SnapshotInfo, SnapshotMeta
from paceline.store.shards import Shard
from paceline.store.snapshots import SnapshotStore
from paceline.store.staging import Writer

JOB = Writer("job-a", 1)


def part(step: int, rank: int = 0) -> Shard:
    tensors = {"w": numpy.full((2, 3), step, "float32"), "rank": numpy.array(rank)}
    return Shard(tensors, {"step": step, "rank": rank})


def save(store: SnapshotStore, step: int, world_size: int = 2, attempt: int = 0) -> SnapshotInfo:
    records = [store.write_shard(step, rank, part(step, rank), attempt=attempt) for rank in range(world_size)]
    return store.commit(step, SnapshotMeta(step // 100, 0, world_size, {"host": "h"}), records, attempt=attempt)


def steps(store: SnapshotStore) -> list[int]:
    return [entry.step for entry in store.entries()]
