"""The manifest: the file that makes a directory a snapshot, and the values that it holds.

It is written last, names every other file with its size and checksum, and carries a checksum of itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from paceline.store.folder import DamagedSnapshotError, Fault, OtherVersionError
from paceline.store.json_bytes import read, sealed, unsealed, with_all_floats, with_standard_floats
from paceline.store.shards import Count, ShardRecord
from paceline.wire.codec import Decoder, Record, encode

MANIFEST_FILE = "manifest.json"
MAX_MANIFEST_BYTES = 64 << 20

_FORMAT = "paceline-snapshot"
_VERSION = 2
_BLOCK_BYTES = 4096
_MAX_SECONDS = 1e11
"""The year 5138."""


class _Kind(msgspec.Struct, frozen=True):
    """What every version of a manifest says, whatever else it says."""

    format: str
    version: int


class _Manifest(Record, frozen=True):
    """The file, less its checksum."""

    format: str
    version: int
    step: Count
    epoch: Count
    fit_call: Count
    world_size: Count
    created_at_seconds: Annotated[float, msgspec.Meta(ge=0, lt=_MAX_SECONDS)]
    notes: dict[str, Any]
    shards: tuple[ShardRecord, ...]


_kind = Decoder[_Kind](_Kind)
_manifest = Decoder[_Manifest](_Manifest)


@dataclass(frozen=True, slots=True)
class SnapshotMeta:
    """What the chief says about a snapshot.

    Args:
        epoch: The epoch that goes on after a restore, from 0.
        fit_call: The number of the call of `fit` that goes on, from 0.
        world_size: How many ranks wrote a shard.
        notes: Any JSON: host layout, threads, versions.
    """

    epoch: int
    fit_call: int
    world_size: int
    notes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One snapshot as its manifest describes it.

    Args:
        name: Of its directory.
        path: Of its directory, for people.
        step: Optimizer steps of the whole job.
        created_at_seconds: Since 1970, by the chief's clock.
        meta: What the chief said.
        shards: By rank; one for each rank.
    """

    name: str
    path: str
    step: int
    created_at_seconds: float
    meta: SnapshotMeta
    shards: tuple[ShardRecord, ...]

    @property
    def epoch(self) -> int:
        """The epoch that goes on after a restore, from 0."""
        return self.meta.epoch

    @property
    def fit_call(self) -> int:
        """The number of the call of `fit` that goes on, from 0."""
        return self.meta.fit_call

    @property
    def world_size(self) -> int:
        """How many ranks wrote it."""
        return self.meta.world_size

    @property
    def notes(self) -> Mapping[str, object]:
        """What else the chief said."""
        return self.meta.notes

    @property
    def size_bytes(self) -> int:
        """Of all files but the manifest."""
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def disk_bytes(self) -> int:
        """What another one like this takes on a disk, at most: files fill whole blocks, and there are directories."""
        blocks = [-(-file.size_bytes // _BLOCK_BYTES) for shard in self.shards for file in shard.files]
        # Of each shard its directory, its record, and what it takes in the manifest; then the manifest.
        return _BLOCK_BYTES * (sum(blocks) + sum(blocks) // 256 + 3 * len(self.shards) + 2)

    @property
    def order(self) -> tuple[int, float, str]:
        """Sorts from old to new: a step that was reached again after a restart counts as newer."""
        return self.step, self.created_at_seconds, self.name


@dataclass(frozen=True, slots=True)
class DamagedSnapshot:
    """A directory that is named like a snapshot and is none that can be trusted."""

    name: str
    path: str
    step: int
    fault: Fault

    @property
    def order(self) -> tuple[int, float, str]:
        """Sorts from old to new; its time is not known, so the oldest of its step."""
        return self.step, 0.0, self.name


def manifest_bytes(step: int, created_at_seconds: float, meta: SnapshotMeta, shards: tuple[ShardRecord, ...]) -> bytes:
    """The file.

    Raises:
        TypeError, ValueError: the notes are no JSON.
    """
    notes = with_standard_floats(meta.notes, "the notes")
    assert isinstance(notes, dict)
    counts = (step, meta.epoch, meta.fit_call, meta.world_size)
    return sealed(encode(_Manifest(_FORMAT, _VERSION, *counts, created_at_seconds, notes, shards)))


def parsed_manifest(data: bytes, name: str, path: str, step: int) -> SnapshotInfo:
    """The snapshot that the manifest `data` in the directory `path` describes.

    Args:
        data: The file.
        name: Of the directory.
        path: Of the directory.
        step: In the name of the directory.

    Raises:
        DamagedSnapshotError: it describes none; `OtherVersionError`: one that this version cannot read.
    """
    kind = read(_kind, data, MANIFEST_FILE)  # before the seal, which another version may have elsewhere
    if kind.format == _FORMAT and kind.version != _VERSION:
        raise OtherVersionError(
            f"{name} has version {kind.version} of the snapshot format, but this Paceline reads version {_VERSION}. "
            "Continue with the Paceline that wrote the snapshot, or train again in another directory"
        )
    found = read(_manifest, unsealed(data, MANIFEST_FILE), MANIFEST_FILE)
    if found.format != _FORMAT:
        raise DamagedSnapshotError(f"the format is {found.format[:60]!a}; expected {_FORMAT}")
    if found.step != step:
        raise DamagedSnapshotError(f"the name of the directory says step {step}, but its manifest says {found.step}")
    in_order = all(shard.rank == rank for rank, shard in enumerate(found.shards))
    if not in_order or not 0 < len(found.shards) == found.world_size:
        raise DamagedSnapshotError(
            f"{len(found.shards)} shards of {found.world_size} ranks; expected one of each, in order"
        )
    notes = with_all_floats(found.notes, MANIFEST_FILE)
    assert isinstance(notes, dict)
    meta = SnapshotMeta(found.epoch, found.fit_call, found.world_size, notes)
    return SnapshotInfo(name, path, step, found.created_at_seconds, meta, found.shards)
