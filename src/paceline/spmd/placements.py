"""What one rank has of a tensor that one worker would have whole.

| placement | a rank has | where it comes from |
|---|---|---|
| `R` replicated | the tensor | weights, seeds, the learning rate, what was summed or gathered |
| `S(dim)` sharded | its own rows of the tensor, along one dimension | the batch, and all that is computed row by row |
| `P` partial | an addend: the sum over all ranks is the tensor | sums over rows: gradients of weights, metrics |

The three are those of PyTorch's DTensor and of GSPMD (arXiv 2105.04663). Unlike theirs, the rows of ranks may be
uneven, or none. From R follow the others without a message: own rows are a slice, and an addend is the tensor on the
first rank and zeros on the others. From S and P follows R by a message.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paceline.spmd.sizes import ONE, ROWS, UNKNOWN, Size, Symbol


@dataclass(frozen=True)
class Replicated:
    """The same on all ranks, and what one worker has."""

    def __repr__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Sharded:
    """Own rows along one dimension.

    Args:
        dim: Which dimension, from the front.
        block: How many entries of the dimension a row has: the dimension's size is `rows * block`, and a rank's own
        entries
            are the blocks of its rows, one after the other.
    """

    dim: int
    block: Size = ONE

    def __repr__(self) -> str:
        return f"S({self.dim})" if self.block == 1 else f"S({self.dim}: {self.block} each)"

    @property
    def size(self) -> Size:
        """The size of the dimension, on all ranks together."""
        return Size.of(ROWS) * self.block

    def at(self, dim: int, block: Size | None = None) -> "Sharded":
        """The same rows along another dimension."""
        return Sharded(dim, self.block if block is None else block)


@dataclass(frozen=True)
class Partial:
    """An addend of the tensor that one worker has."""

    def __repr__(self) -> str:
        return "P"


@dataclass(frozen=True)
class Open:
    """A list without an element yet, which becomes whatever list it is needed as."""

    def __repr__(self) -> str:
        return "open"


Placement = Replicated | Sharded | Partial | Open

R = Replicated()
P = Partial()

Dims = tuple[Size, ...]


@dataclass(frozen=True, eq=False)
class Spec:
    """What is known of a tensor before the step runs; all of it is about the tensor that one worker has.

    Args:
        placement: What a rank has of the tensor; of a list of tensors, what it has of each element.
        dims: The sizes of the dimensions, or None if their number is not known. Of a list: those of each element.
        content: The entries of a small tensor of integers, where something is known of them: an array of `Size`.
        element: Of a list of tensors, the type of the elements (a `tf.DType`).
    """

    placement: Placement = R
    dims: Dims | None = None
    content: np.ndarray | None = field(default=None, repr=False)
    element: Any = None

    @property
    def rank(self) -> int | None:
        """The number of dimensions."""
        return None if self.dims is None else len(self.dims)

    @property
    def shard(self) -> Sharded | None:
        """The placement, if it is a shard."""
        return self.placement if isinstance(self.placement, Sharded) else None

    def placed(self, placement: Placement) -> "Spec":
        """The same tensor in another way."""
        return replace(self, placement=placement)

    def numbers(self) -> list[int] | None:
        """The entries of the content in one line, if each is a number."""
        if self.content is None:
            return None
        entries = [entry.number for entry in self.content.reshape(-1)]
        return None if None in entries else [entry for entry in entries if entry is not None]


def new_dims(shape: "list[int | None] | None", name: str) -> Dims | None:
    """Sizes for a shape as a graph has it, with a new symbol for each that is open."""
    if shape is None:
        return None
    return tuple(
        Size.of(Symbol.new(f"{name}.{axis}")) if size is None else Size.of(size) for axis, size in enumerate(shape)
    )


def known_content(content: "np.ndarray | None") -> "np.ndarray | None":
    """`content`, unless nothing is known of any entry."""
    if content is None or (content.size and all(entry is UNKNOWN or not entry.known for entry in content.reshape(-1))):
        return None
    return content


def common_content(one: "np.ndarray | None", two: "np.ndarray | None") -> "np.ndarray | None":
    """What is true of both contents."""
    if one is None or two is None or one.shape != two.shape:
        return None
    return known_content(np.asarray(np.frompyfunc(lambda a, b: a if a == b else UNKNOWN, 2, 1)(one, two), dtype=object))
