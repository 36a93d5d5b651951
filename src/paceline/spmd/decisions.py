"""What a rule answers: what an operation needs of its inputs, and what its outputs are then. Pure values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from paceline.spmd.placements import Placement, Spec
from paceline.spmd.sizes import ROWS, Size, Symbol

OWN_ROWS = Symbol(-2, "own rows")
"""How many rows this rank has. Only in what is made for one rank: dims and contents are about all rows."""

FIRST_ROW = Symbol(-3, "first row")
"""The number of this rank's first row in the whole batch."""


class OutputLike(Protocol):
    """An input or output of an operation, as a traced graph has it."""

    shape: Any
    dtype: Any


class Operation(Protocol):
    """An operation of a traced graph: a `tf.Operation`, or what a test makes in its place."""

    @property
    def type(self) -> str:
        """As `MatMul`."""
        ...

    @property
    def name(self) -> str:
        """The path in its graph."""
        ...

    @property
    def inputs(self) -> Sequence[OutputLike]:
        """The tensors that it reads, as they were traced."""
        ...

    @property
    def outputs(self) -> Sequence[OutputLike]:
        """The tensors that it makes, as they were traced."""
        ...

    def get_attr(self, name: str) -> Any:
        """An attribute."""
        ...


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """An input of small integers that is made anew, as one rank needs it.

    Args:
        content: Its entries, in which `OWN_ROWS` may stand; where one is unknown, the input's own entry.
    """

    content: np.ndarray


Need = Placement | Rebuilt

Build = Callable[[Any, Operation, list[Any]], list[Any]]
"""Builds the outputs of an operation, given a `building.Builder`, the operation, and its inputs as they are needed."""


@dataclass(frozen=True, eq=False)
class Decision:
    """How an operation runs on a rank.

    Args:
        needs: What each input must be.
        outputs: What the outputs are then.
        build: Builds the outputs where a copy of the operation will not do.
        also: Other ways to make the same outputs, in another placement: they cost nothing where nobody takes them.
    """

    needs: tuple[Need, ...]
    outputs: tuple[Spec, ...]
    build: Build | None = None
    also: "tuple[Decision, ...]" = ()


def told(placements: Sequence[Placement], outputs: Sequence[Spec]) -> Decision:
    """Outputs that are known without a look at the inputs: their contents are."""

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        del inputs
        return [builder.content(output.content, like.dtype) for output, like in zip(outputs, op.outputs, strict=True)]

    return Decision(tuple(placements), tuple(outputs), build)


def own(size: Size) -> Size:
    """`rows * block` as this rank has it."""
    return size.over(Size.of(ROWS)) * Size.of(OWN_ROWS)
