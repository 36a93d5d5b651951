"""The parts of a snapshot: each kind of state, who stores it, and how it comes back.

`fit` and `TrainingState` both hand a list of parts to `capture` and to `SavedParts.restore` (`restored_parts.py`); more
state in a snapshot is one more `Part` in such a list.

scope   the state is                      written by                restored by as many ranks   by another number
all     the same on all ranks             rank 0                    to all                      to all
group   the same on a model's replicas    the group's first rank    to the group                to the group
rank    each rank's own                   every rank                to the rank itself          the first's, to all
sum     a share of the group's total      every rank                to the rank itself          the total, to the first
pieces  a piece of what the group has     every rank, or none       to each what it asks for    the same

    capture   part ─► JSON + arrays ─┐
              part ─► JSON + arrays ─┴─► Captured ─► copied into buffers ─► Shard, written in the background
    restore   shards ─► SavedParts ─► every part is prepared, and may refuse ─► every part is restored, in order
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.resilience.copy_buffers import CopyBuffers
from paceline.resilience.object_state import Frozen, Tensors, decode, encode
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
    PIECES = "pieces"
    """Too large for one rank: the ranks of a group have pieces of it, which may be cut at other places later."""


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
class Piece:
    """What one rank wrote of a part in pieces."""

    state: Any
    """The JSON that `capture` gave there."""
    read: Callable[[], Mapping[str, Any]]
    """Reads the arrays that it names, and others: all that the rank wrote. Let go of them before the next piece."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A part as a snapshot has it for this rank."""

    state: Any
    """The JSON that `capture` gave."""
    arrays: Mapping[str, Any]
    """Those that it names; there may be others."""
    same_ranks: bool
    """Whether as many ranks wrote the snapshot; else what was one rank's own is the first rank's of its group."""
    pieces: tuple[Piece, ...] = ()
    """Of a part in pieces those of all ranks of the group; `state` and `arrays` are those of one of them."""

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
