"""The position of a `fit` in its data, as a snapshot stores it.

The position leads to the same rows in the same order.

    iterator 0          iterator 1          iterator 2
    [b b b b b b b]     (never read)        [b b b ^]      ^ here: batches = (7, 0, 3)

Whoever makes the same iterators over the same dataset, in this order, and takes as many batches from each stands at the
same position: a shuffle draws one seed for each iterator, read or not.
"""

from dataclasses import asdict, dataclass
from typing import Any

from paceline.fit.sources.source import Position
from paceline.resilience.object_state import Frozen, decode
from paceline.resilience.parts import Arrays, Saved

DATA = "data"
"""The name of the part."""
GENERATORS, SOURCE = "generators", "source"


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a `fit` has read."""

    epoch: int = 0
    """From 0."""
    step: int = 0
    """Steps of the epoch that have been taken."""
    batches: tuple[int, ...] = ()
    """Taken from each iterator so far; the last one is being read."""
    steps_seen: int = 0
    """Steps that Keras has counted in the iterator that is being read."""


@dataclass(frozen=True, slots=True)
class Begin:
    """What the rows are drawn from, as it was before they were."""

    generators: Frozen
    """The process's random generators before the epoch in which the current iterator was first read, which may draw
    the order of the batches."""
    source: Frozen
    """What a `PyDataset` held before this epoch, hence before its `on_epoch_begin`; where the epoch is over, after
    it."""


@dataclass(frozen=True, slots=True)
class DataPosition:
    """Where in its data a run stood, and what it takes to come back there."""

    cursor: Cursor
    begin: Begin
    num_batches: int | None
    """As Keras knew it."""
    of_source: Position
    """What the source has of it."""
    shares: Any
    """By which rows are shared out (`Source.position_of_shares`)."""
    is_over: bool
    """Whether the epoch has no more steps: it is being validated, or a callback has ended it."""

    def captured(self, arrays: Arrays) -> Any:
        """For a snapshot."""
        return {
            "cursor": asdict(self.cursor),
            GENERATORS: arrays.frozen(self.begin.generators),  # an order of many rows is copied once in an epoch
            SOURCE: arrays.frozen(self.begin.source),
            "num_batches": self.num_batches,
            "iterator": arrays.value(self.of_source.state, "iterator"),
            "form": self.of_source.form,
            "shares": self.shares,
            "is_over": self.is_over,
        }

    @classmethod
    def saved(cls, saved: Saved) -> "DataPosition":
        """That in a snapshot; another number of ranks has no iterator like the one whose state was stored."""

        def frozen(name: str) -> Frozen:
            path = path_of(name)
            return Frozen(saved.state[name], {at: one for at, one in saved.arrays.items() if at.startswith(path)})

        counted = saved.state["cursor"]
        cursor = Cursor(**{**counted, "batches": tuple(counted["batches"])})
        state = decode(saved.state["iterator"], saved.arrays) if saved.same_ranks else None
        return cls(
            cursor=cursor,
            begin=Begin(frozen(GENERATORS), frozen(SOURCE)),
            num_batches=saved.state["num_batches"],
            of_source=Position(cursor.batches, state, saved.state["form"]),
            shares=saved.state.get("shares") if saved.same_ranks else None,
            is_over=saved.state["is_over"],
        )


def path_of(name: str) -> str:
    """What the arrays of a `Begin` are called in a snapshot."""
    return f"{DATA}/{name}"
