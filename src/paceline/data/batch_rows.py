"""The rows of a batch: whether they are its first axis, by what a dataset says of it, and which a rank computes.

Only what is sure is refused: components of one batch that differ in their first axis, and elements that are no batches.
`describe_data` collects what is known of a dataset before its first batch.
"""

import functools
import re
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from paceline.cluster.row_shares import begins, shares_in
from paceline.data import compat
from paceline.data.faults import keeps_fault
from paceline.data.own_rows.row_wise import is_row_wise

Number = TypeVar("Number")

_GATHERS = re.compile("(?!Unbatch).*(Batch|Window|Ragged)")
"""Types of datasets, as classes without their underscore, that make batches of elements or may do so."""


def has_batch_operation(dataset: Any) -> bool:
    """Whether a `tf.data.Dataset` was made with an operation that may have put elements together."""
    return any(_GATHERS.match(type(one).__name__.lstrip("_")) for one in compat.with_sources(dataset))


def is_slices_of_arrays(dataset: Any) -> bool:
    """Whether each element is sure to be made of one entry of the arrays of `from_tensor_slices`: never batched."""
    names = {type(one).__name__.lstrip("_").removesuffix("Dataset") for one in compat.with_sources(dataset)}
    return "TensorSlice" in names and names <= _ONE_BY_ONE


_ONE_BY_ONE = frozenset(
    ["TensorSlice", "Map", "ParallelMap", "Shuffle", "Prefetch", "Cache", "Repeat", "Take", "Skip", "Filter", "Options"]
)


def named_components(structure: Any, name: str = "data") -> list[tuple[str, Any]]:
    """The components of an element or of its spec with their names, in the order of `tf.nest.flatten`.

    >>> named_components(({"b": 1, "a": 2}, 3))
    [("data[0]['a']", 2), ("data[0]['b']", 1), ('data[1]', 3)]
    """
    if isinstance(structure, dict):
        return [pair for key in sorted(structure) for pair in named_components(structure[key], f"{name}[{key!r}]")]
    if isinstance(structure, list | tuple):
        return [pair for at, one in enumerate(structure) for pair in named_components(one, f"{name}[{at}]")]
    return [(name, structure)]


def differing_rows(rows: list[tuple[str, tuple[int | None, ...]]]) -> str | None:
    """What to tell of a batch whose components have these names and shapes; None if they have equally many rows; pure.

    Args:
        rows: Of each component that has an axis; None where a size is not known.
    """
    if len({shape[0] for _, shape in rows if shape[0] is not None}) <= 1:
        return None
    listed = ", ".join(f"{name} {_text(shape)}" for name, shape in rows)
    return (
        f"the components of a batch have different lengths along axis 0: {listed}. Each replica gets its rows of "
        "every component, so axis 0 must be the rows in all of them; only scalars are exempt. If a component "
        "has no rows, pass it as a scalar, as an attribute of the model, or repeated for each row. If it has rows of "
        "its own, batch it by itself, and zip the batches last. If its rows are on another axis, move that axis to the "
        "front. If the dataset gives single examples, add .batch(global_batch_size) [rows-differ]"
    )


def checked_rows(element: Any) -> Any:
    """An operation that fails on an `element` whose components differ in their number of rows; None: they cannot.

    Raises:
        ValueError: their shapes say so already.
    """
    pairs = [(name, leaf) for name, leaf in named_components(element) if _has_rows(leaf)]
    static = [(name, tuple(leaf.shape) if leaf.shape.rank else (None,)) for name, leaf in pairs]
    if told := differing_rows(static):
        raise ValueError(told)
    if len(pairs) < 2 or all(shape[0] is not None for _, shape in static):
        return None
    numbers = tf.stack([_number_of_rows(leaf) for _, leaf in pairs])

    def refuse(numbers: Any) -> Any:
        shapes = [(name, (int(count), *shape[1:])) for (name, shape), count in zip(static, numbers, strict=True)]
        raise ValueError(differing_rows(shapes))

    # Stateless for TensorFlow, as an assertion is not: a stateful function would forbid saving the iterator's position.
    return tf.cond(
        tf.reduce_all(numbers == numbers[0]),
        lambda: tf.constant(0, tf.int64),
        lambda: tf.numpy_function(keeps_fault(refuse), [numbers], tf.int64, stateful=False),
    )


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) or (tf.is_tensor(leaf) and leaf.shape.rank != 0)


def _number_of_rows(leaf: Any) -> Any:
    if isinstance(leaf, tf.RaggedTensor):
        return tf.cast(leaf.nrows(), tf.int64)
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    return tf.shape(leaf, tf.int64)[0]


def _text(shape: Any) -> str:
    sizes = ", ".join("?" if size is None else str(size) for size in shape)
    return f"({sizes},)" if np.size(shape) == 1 else f"({sizes})"


def local_slice(rows: Number, rank: int, size: int) -> tuple[Number, Number]:
    """The rows [begin, end) of a global batch that `rank` of `size` computes.

    Slices are contiguous, in rank order, and cover every row exactly once. Without ``--shares`` they are even
    (`even_slice`), as in `tf.distribute`.

    Args:
        rows: Rows of the global batch (an int or an integer scalar tensor).
        rank: This rank.
        size: Number of ranks.

    >>> [local_slice(10, rank, 4) for rank in range(4)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    shares = _shares()
    return slice_by(shares, rows, rank) if len(shares) == size else even_slice(rows, rank, size)


def slice_by(shares: tuple[int, ...], rows: Number, rank: int) -> tuple[Number, Number]:
    """The rows [begin, end) of a global batch that `rank` computes, by the shares of all ranks.

    >>> [slice_by((3, 1), 10, rank) for rank in range(2)]
    [(0, 7), (7, 10)]
    """
    return _begin_of_share(rows, rank, shares), _begin_of_share(rows, rank + 1, shares)


def even_slice(rows: Number, index: int, number: int) -> tuple[Number, Number]:
    """The rows [begin, end) of one of several parts that differ by at most one row, the first parts having more.

    With fewer rows than parts the last ones have none.
    """
    return _begin(rows, index, number), _begin(rows, index + 1, number)


@functools.cache
def _shares() -> tuple[int, ...]:
    return shares_in()


def _begin_of_share(rows: Any, rank: Any, shares: tuple[int, ...]) -> Any:
    if isinstance(rank, int) and rank in (0, len(shares)):
        return _begin(rows, rank, len(shares))
    first = begins(shares)
    if not tf.is_tensor(rows) and isinstance(rank, int):
        return rows * first[rank] // first[-1]
    # The product of a large batch and a large share may not fit into 32 bits.
    number = first[rank] if isinstance(rank, int) else tf.gather(tf.constant(first, tf.int64), rank)
    dtype = rows.dtype if tf.is_tensor(rows) else rank.dtype
    return tf.cast(tf.cast(rows, tf.int64) * number // first[-1], dtype)


def _begin(rows: Any, rank: Any, size: int) -> Any:
    # Each operation in the graph of an input pipeline costs time at every `fit`, so there are no more than it takes.
    if isinstance(rank, int) and rank == size:
        return rows
    if isinstance(rank, int) and rank == 0:
        return tf.zeros_like(rows) if tf.is_tensor(rows) else 0
    each = rows // size
    smaller = tf.minimum if tf.is_tensor(rows) or tf.is_tensor(rank) else min
    return rank * each + smaller(rows - each * size, rank)


@dataclass(frozen=True, slots=True)
class DataDescription:
    """What a run needs to know of its data."""

    is_local: bool
    """Whether each rank feeds its own rows."""
    batch_size: int | None
    """Rows of a full batch as the script gives it; None if it is not known."""
    num_batches: int | None
    """Batches of a finite dataset; None if it is endless or does not know."""
    steps_per_epoch: int | None
    """As the user asks for."""
    components: str
    """Shapes, rows left out, and dtypes."""
    element_spec: Any
    """Of its batches."""
    may_be_batched: bool
    """Whether Keras or some operation may have put elements together."""
    is_never_batched: bool
    """Whether each element is sure to be one entry of an array."""
    work: str = ""
    """What each rank reads and makes, for the chief's line; empty: it is not divided."""
    facts: tuple[str, ...] = ()
    """Of a source by index: what must be the same on all ranks."""


def describe_data(
    dataset: Any,
    *,
    batch_size: int | None = None,
    num_batches: int | None = None,
    is_local: bool = False,
    steps_per_epoch: int | None = None,
    of_arrays: bool = False,
    work: str = "",
    facts: tuple[str, ...] = (),
) -> DataDescription:
    """Describes `dataset`, of batches, without reading it; `of_arrays` says that Keras has made it of arrays.

    For the other arguments see `DataDescription`. Sizes that are None are asked of the dataset.
    """
    return DataDescription(
        is_local=is_local,
        batch_size=batch_size or _positive(compat.batch_size_of(dataset)) or rows_of_full_batch(dataset),
        num_batches=num_batches or _positive(dataset.cardinality()),
        steps_per_epoch=steps_per_epoch,
        components=", ".join(_component(leaf) for leaf in tf.nest.flatten(dataset.element_spec)),
        element_spec=dataset.element_spec,
        may_be_batched=of_arrays or bool(facts) or has_batch_operation(dataset),
        is_never_batched=not of_arrays and is_slices_of_arrays(dataset),
        work=work,
        facts=facts,
    )


def rows_of_full_batch(dataset: Any) -> int | None:
    """Rows of a full batch behind maps that have a row for each row; None: the stages do not tell."""
    while compat.kind_of(dataset) in KEEP_BATCHES or (
        compat.kind_of(dataset) in ("Map", "ParallelMap") and is_row_wise(dataset)
    ):
        [dataset] = compat.inputs_of(dataset)
        if rows := _positive(compat.batch_size_of(dataset)):
            return rows
    return None


KEEP_BATCHES = frozenset(
    ["AssertCardinality", "Cache", "CopyToDevice", "Options", "Prefetch", "Repeat", "Shuffle", "Skip", "Take"]
)
"""Kinds of datasets that give the batches of their input as they are, or some of them."""


def _positive(number: Any) -> int | None:
    return int(number) if int(number) > 0 else None


def _component(spec: Any) -> str:
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    if shape is None or dtype is None:
        return type(spec).__name__
    sizes = "unknown rank" if shape.rank is None else tuple(shape)[1:]
    return f"{dtype.name} {sizes}"
