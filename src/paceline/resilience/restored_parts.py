"""A snapshot as one rank restores it: each part, by its scope, from the shards of the ranks that wrote it."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from paceline.errors import ConfigurationError
from paceline.resilience.parts import DATA_GROUPS, Layout, Part, Piece, Saved, Scope
from paceline.store.manifest import SnapshotInfo


class _Reader(Protocol):
    """Where shards come from: `store.reading.SnapshotReader`."""

    info: SnapshotInfo

    def state(self, rank: int) -> Mapping[str, Any]: ...
    def tensors(self, rank: int) -> Mapping[str, Any]: ...


class SavedParts:
    """A snapshot as this rank restores it.

    Args:
        reader: The snapshot.
        layout: The ranks that restore it.

    Raises:
        ConfigurationError: it is of another number of models.
    """

    def __init__(self, reader: _Reader, layout: Layout) -> None:
        self.info = reader.info
        self._layout = layout
        noted: Any = self.info.notes.get(DATA_GROUPS, [range(self.info.world_size)])
        groups = tuple(tuple(group) for group in noted)
        if len(groups) != len(layout.groups):
            raise ConfigurationError(
                f"the snapshot {self.info.path} is of {len(groups)} models, but this job trains {len(layout.groups)}. "
                "Use another snapshot directory, or train as many models as when the snapshot was taken. [other-model]"
            )
        self.same_ranks = groups == layout.groups
        """Whether as many ranks wrote it."""
        self._group = groups[layout.index]
        self._own = layout.rank if self.same_ranks else self._group[0]
        self._state = functools.cache(reader.state)
        self._read, self._tensors = reader.tensors, functools.cache(reader.tensors)

    def _rank(self, scope: Scope) -> int:
        """In whose shard this rank finds parts of that scope."""
        first: dict[Scope, int] = {Scope.ALL: 0, Scope.GROUP: self._group[0]}
        return first.get(scope, self._own)

    def has(self, name: str) -> bool:
        """Whether there is a part of this name."""
        return name in self._state(self._own)

    def of(self, name: str, scope: Scope = Scope.RANK) -> Saved:
        """One part."""
        rank = self._rank(scope)
        if scope is Scope.PIECES:
            pieces = tuple(Piece(self._state(one)[name], functools.partial(self._arrays, one)) for one in self._group)
            return Saved(self._state(rank)[name], {}, self.same_ranks, pieces)
        arrays = self._tensors(rank)
        if scope is Scope.SUM and not self.same_ranks:
            arrays = self._total(name, arrays)
        return Saved(self._state(rank)[name], arrays, self.same_ranks)

    def _arrays(self, rank: int) -> Mapping[str, Any]:
        """Another rank's are not kept: together they may be more than fits into memory."""
        return self._tensors(rank) if rank == self._own else self._read(rank)

    def restore(self, parts: Sequence[Part]) -> None:
        """Gives `parts` what the snapshot has of them, in their order.

        Raises:
            ConfigurationError: one does not fit, or is not there; nothing is restored then.
        """
        missing = [part.name for part in parts if part.name not in self._state(self._rank(part.scope))]
        if missing:
            there = {name for scope in Scope for name in self._state(self._rank(scope))}
            raise ConfigurationError(
                f"the snapshot {self.info.path} has no {_registered(missing)} for rank {self._layout.rank} as the "
                f"script registers it; it has {_registered(there)}. Register the same objects under the same names, "
                "or use another directory. [other-model]"
            )
        found = [(part, self.of(part.name, part.scope)) for part in parts]
        for part, saved in found:
            part.prepare(saved)
        for part, saved in found:
            part.restore(saved)

    def _total(self, name: str, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """For the first rank of the group what all ranks had together, for the others zeros."""
        names = [path for path in arrays if path.startswith(f"{name}/")]
        if self._layout.rank != self._layout.group[0]:
            return {path: np.zeros_like(arrays[path]) for path in names}
        shares = {rank: self._tensors(rank) for rank in self._group}
        for rank, share in shares.items():
            if not share.keys() >= set(names):
                raise ConfigurationError(
                    f"the snapshot {self.info.path} has no share of rank {rank} in {_registered([name])}, "
                    f"but one of rank {self._group[0]}, so the total is not known. Continue with "
                    f"{self.info.world_size} workers, as when it was taken, or use another directory. [other-model]"
                )
        return {
            path: np.sum([one[path] for one in shares.values()], axis=0, dtype=arrays[path].dtype) for path in names
        }


def _registered(names: Iterable[str]) -> str:
    """Under which names a script has registered these parts: what is added to a name follows a dot."""
    return ", ".join(sorted({name.partition(".")[0] for name in names} - {""}))
