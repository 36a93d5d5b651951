"""The parts of a snapshot: each kind of state, who stores it, and how it comes back.

`fit` and `TrainingState` both hand a list of parts to `capture` and to `SavedParts.restore`; more state in a snapshot
is one more `Part` in such a list.

scope   the state is                      written by                restored by as many ranks   by another number
all     the same on all ranks             rank 0                    to all                      to all
group   the same on a model's replicas    the group's first rank    to the group                to the group
rank    each rank's own                   every rank                to the rank itself          the first's, to all
sum     a share of the group's total      every rank                to the rank itself          the total, to the first

    capture   part ─► JSON + arrays ─┐
              part ─► JSON + arrays ─┴─► Captured ─► copied into buffers ─► Shard, written in the background
    restore   shards ─► SavedParts ─► every part is prepared, and may refuse ─► every part is restored, in order
"""

import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from paceline.errors import ConfigurationError
from paceline.resilience.copy_buffers import CopyBuffers
from paceline.resilience.object_state import Frozen, Tensors, decode, encode
from paceline.store.manifest import SnapshotInfo
from paceline.store.shards import Shard

DATA_GROUPS = "data_groups"
"""In the notes of a snapshot of several models: the ranks of each data group."""


class Scope(enum.Enum):
    """Who has a state in common."""

    ALL = "all"
    """What a job has once, whatever models it trains. All that `fit` and `TrainingState` store belongs to a model or to
    a rank, so none of their parts has this scope; it is for a part of the job's own, such as a count of all its rows.
    """
    GROUP = "group"
    RANK = "rank"
    SUM = "sum"


@dataclass(frozen=True, slots=True)
class Layout:
    """The ranks that take snapshots together.

    >>> Layout(3, ((0, 1), (2, 3))).group
    (2, 3)

    Args:
        rank: This one.
        groups: Of each model, the ranks that train it; each rank is in one of them.
    """

    rank: int
    groups: tuple[tuple[int, ...], ...]

    @property
    def group(self) -> tuple[int, ...]:
        """This rank's data group."""
        return self.groups[self.index]

    @property
    def index(self) -> int:
        """Which of the groups that is."""
        return next(index for index, group in enumerate(self.groups) if self.rank in group)

    def writes(self, scope: Scope) -> bool:
        """Whether this rank writes parts of that scope."""
        first = {Scope.ALL: 0, Scope.GROUP: self.group[0]}
        return self.rank == first.get(scope, self.rank)


@dataclass(slots=True)
class Captured:
    """What the parts of one rank were at one moment."""

    state: dict[str, Any] = field(default_factory=dict)
    """JSON, by the names of the parts."""
    live: Tensors = field(default_factory=dict)
    """Arrays that others change as soon as training goes on."""
    held: Tensors = field(default_factory=dict)
    """Tensors of TensorFlow. While one is held, its variable takes new memory when it is assigned."""
    fixed: Tensors = field(default_factory=dict)
    """Arrays that nobody changes: they are written without another copy."""

    def settle(self) -> None:
        """From here on it is what it is, whenever it is written."""
        self.fixed |= {name: np.array(array) for name, array in self.live.items()}
        self.live = {}

    def copied(self, buffers: CopyBuffers) -> Shard:
        """A copy of it in `buffers`, complete at their `end`."""
        # One kind of work after the other: next to a step's own arithmetic each is slow the first time.
        arrays = self.live | {name: _seen(tensor) for name, tensor in self.held.items()}
        return Shard({name: buffers.copy(name, array) for name, array in arrays.items()} | self.fixed, self.state)


def _seen(tensor: Any) -> Any:
    """Its own memory as an array, where it is on a CPU."""
    return np.asarray(tensor if tensor.shape.rank else tensor.numpy())  # without dimensions: NumPy's own number


class Arrays:
    """Where a part puts its arrays.

    Args:
        name: The part's.
        captured: What all parts hand over.
    """

    def __init__(self, name: str, captured: Captured) -> None:
        self.name = name
        self.captured = captured

    def value(self, value: Any, below: str = "") -> Any:
        """A value as JSON, whose arrays are copied before training goes on.

        Args:
            value: What `object_state.encode` takes.
            below: Tells the values of one part apart.
        """
        return encode(value, self.captured.live, f"{self.name}/{below}" if below else self.name)

    def frozen(self, value: Frozen) -> Any:
        """A value as JSON that was encoded earlier, with paths of arrays that begin with this part's name."""
        self.captured.fixed |= value.tensors
        return value.encoded

    def tensor(self, number: int, tensor: Any) -> str:
        """Holds a tensor; what it is called in the snapshot."""
        name = f"{self.name}/{number:05d}"
        self.captured.held[name] = tensor
        return name


@dataclass(frozen=True, slots=True)
class Saved:
    """A part as a snapshot has it for this rank."""

    state: Any
    """The JSON that `capture` gave."""
    arrays: Mapping[str, Any]
    """Those that it names; there may be others."""
    same_ranks: bool
    """Whether as many ranks wrote the snapshot; else what was one rank's own is the first rank's of its group."""

    @property
    def value(self) -> Any:
        """What `Arrays.value` was given."""
        return decode(self.state, self.arrays)


def _nothing(saved: Saved) -> None:
    del saved


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of state.

        Part("loss_scale", Scope.ALL, lambda arrays: arrays.value(scale.value), lambda saved: scale.set(saved.value))

    Args:
        name: In the snapshot; other than those of all other parts.
        scope: Who has it in common.
        capture: Gives it as JSON, on the ranks that write it; arrays go to the argument. Of a sum, the JSON is the same
            on all ranks of the group, and so are names, shapes and types of the arrays.
        restore: Puts it back.
        prepare: Before anything is restored: refuses what does not fit, makes what is missing.
    """

    name: str
    scope: Scope
    capture: Callable[[Arrays], Any]
    restore: Callable[[Saved], None]
    prepare: Callable[[Saved], None] = _nothing


def capture(parts: Iterable[Part], layout: Layout) -> Captured:
    """What this rank writes of `parts`, as they are now. Nothing that is large is copied yet.

    Raises:
        ValueError: two parts have the same name; one of them would be lost.
    """
    captured = Captured()
    names: set[str] = set()
    for part in parts:
        if part.name in names:
            raise ValueError(f"two parts of a snapshot are called {part.name}. Register one under another name.")
        names.add(part.name)
        if layout.writes(part.scope):
            captured.state[part.name] = part.capture(Arrays(part.name, captured))
    return captured


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
        self._tensors = functools.cache(reader.tensors)

    def _rank(self, scope: Scope) -> int:
        """In whose shard this rank finds parts of that scope."""
        first: dict[Scope, int] = {Scope.ALL: 0, Scope.GROUP: self._group[0]}
        return first.get(scope, self._own)

    def of(self, name: str, scope: Scope = Scope.RANK) -> Saved:
        """One part."""
        rank = self._rank(scope)
        arrays = self._tensors(rank)
        if scope is Scope.SUM and not self.same_ranks:
            arrays = self._total(name, arrays)
        return Saved(self._state(rank)[name], arrays, self.same_ranks)

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
