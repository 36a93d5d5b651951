"""Snapshots in memory: what ranks capture goes through the formats of the store, and comes back."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.resilience.copy_buffers import CopyBuffers
from paceline.resilience.parts import DATA_GROUPS, Captured, Layout, Part, capture
from paceline.resilience.restored_parts import SavedParts
from paceline.store import json_bytes, tensors
from paceline.store.manifest import SnapshotInfo, SnapshotMeta

ALONE = Layout(0, ((0,),))


class MemoryReader:
    """A snapshot that nobody has written to a disk."""

    def __init__(self, captured: Sequence[Captured], notes: Mapping[str, object] | None = None) -> None:
        meta = SnapshotMeta(0, 0, len(captured), notes or {})
        self.info = SnapshotInfo("step-000000000007", "run/step-000000000007", 7, 0.0, meta, ())
        self._shards = []
        for one in captured:
            buffers = CopyBuffers()
            buffers.begin()
            shard = one.copied(buffers)
            buffers.end()
            self._shards.append((json_bytes.to_bytes(shard.state, "it"), b"".join(tensors.to_chunks(shard.tensors))))

    def state(self, rank: int) -> Any:
        return json_bytes.from_bytes(self._shards[rank][0], "it")

    def tensors(self, rank: int) -> Mapping[str, Any]:
        return tensors.from_bytes(self._shards[rank][1], "it")


def layouts_of(groups: Iterable[Sequence[int]]) -> list[Layout]:
    """That of each rank."""
    table = tuple(map(tuple, groups))
    return [Layout(rank, table) for rank in sorted(rank for group in table for rank in group)]


def snapshot_of(
    parts_of_ranks: Sequence[Sequence[Part]], groups: Sequence[Sequence[int]] | None = None
) -> MemoryReader:
    """What ranks with these parts would write; all train one model, if no groups are given."""
    groups = [range(len(parts_of_ranks))] if groups is None else groups
    captured = [capture(parts, layout) for parts, layout in zip(parts_of_ranks, layouts_of(groups), strict=True)]
    return MemoryReader(captured, {DATA_GROUPS: [[*group] for group in groups]})


def restore(reader: MemoryReader, parts: Sequence[Part], layout: Layout = ALONE) -> None:
    SavedParts(reader, layout).restore(parts)
