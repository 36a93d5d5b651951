"""Components of batches that were batched with another size than others: every rank gets them whole.

Two datasets that are batched apart and zipped give batches of two lengths, such as many pictures without labels and few
with labels (SimCLR, NNCLR, AdaMatch). The ranks divide the rows of what was batched with the largest size. The others
are whole on all ranks.

    zip(pictures.batch(500), labelled.batch(26))      rank 0: pictures[0:250], labelled      rank 1: [250:500], labelled

What is known of the rows of a component is the length that its type has, or the size with which it was batched.
"""

from typing import Any, Union

import tensorflow as tf

from paceline.data import compat
from paceline.data.batch_rows import KEEP_BATCHES, named_components

_MAPS = frozenset(["Map", "ParallelMap"])


class WholeRows(tf.experimental.ExtensionType):  # type: ignore[misc]  # TensorFlow is untyped
    """A component of a batch that is the same on all ranks: no tensor, so nobody takes its rows for a rank's."""

    rows: Union[tf.Tensor, tf.RaggedTensor, tf.SparseTensor]  # noqa: UP007  # TensorFlow reads the annotation


def replicated_components(dataset: Any) -> tuple[bool, ...]:
    """Which components of batches every rank gets whole, in the order of `tf.nest.flatten`; empty: none of them.

    Args:
        dataset: Of global batches.
    """
    usual, rows = usual_rows(dataset), _rows_of_components(dataset)
    found = tuple(usual is not None and number not in (usual, None) for number in rows)
    return found if any(found) else ()


def usual_rows(dataset: Any) -> int | None:
    """The largest size with which a component was batched, if its rows have stayed; None: not known."""
    pairs = zip(_sizes_of_batches(dataset), _rows_of_components(dataset), strict=True)
    return max((size for size, number in pairs if size is not None and size == number), default=None)


def _rows_of_components(dataset: Any) -> list[int | None]:
    leaves = tf.nest.flatten(dataset.element_spec)
    return [_rows_of(leaf, size) for leaf, size in zip(leaves, _sizes_of_batches(dataset), strict=True)]


def names_of(dataset: Any, replicated: tuple[bool, ...]) -> str:
    """The names of these components of an element."""
    named = named_components(dataset.element_spec)
    return ", ".join(name for (name, _), is_whole in zip(named, replicated, strict=True) if is_whole)


def words_on(dataset: Any, replicated: tuple[bool, ...]) -> str:
    """What every rank computes whole; for a line of a log."""
    names = names_of(dataset, replicated)
    return f"all rows of {names} on every rank, as these were batched with another size"


def wrapped(structure: Any, replicated: tuple[bool, ...]) -> Any:
    """An element, or its spec, in which these components are `WholeRows`."""
    leaves = [
        _wrap(leaf) if is_whole else leaf for leaf, is_whole in zip(tf.nest.flatten(structure), replicated, strict=True)
    ]
    return tf.nest.pack_sequence_as(structure, leaves)


def unwrapped(structure: Any) -> Any:
    """An element, or its spec, as one worker has it."""
    return tf.nest.map_structure(lambda leaf: leaf.rows if _is_wrapped(leaf) else leaf, structure)


def _wrap(leaf: Any) -> Any:
    return WholeRows.Spec(leaf) if isinstance(leaf, tf.TypeSpec) else WholeRows(leaf)


def _is_wrapped(leaf: Any) -> bool:
    return isinstance(leaf, WholeRows | WholeRows.Spec)


def _rows_of(spec: Any, size: int | None) -> int | None:
    """The rows of a component in full batches, if that is known and it has any."""
    shape = getattr(spec, "shape", None)
    if shape is None or shape.rank is None or isinstance(spec, tf.RaggedTensorSpec | tf.SparseTensorSpec):
        return size
    return (size if shape[0] is None else int(shape[0])) if shape.rank else None


def _sizes_of_batches(dataset: Any) -> list[int | None]:
    """For each component the size with which it was batched; None: not known. Reads nothing."""
    number = len(tf.nest.flatten(dataset.element_spec))
    if (options := compat.options_of_batch(dataset)) is not None:
        return [options["batch_size"]] * number
    sizes = [size for one in compat.inputs_of(dataset) for size in _sizes_of_batches(one)]
    kind = compat.kind_of(dataset)
    if kind == "Zip" or kind in KEEP_BATCHES:
        return sizes
    # A static length tells whether a map has kept the rows; without one the map is taken to have kept them.
    if kind in _MAPS and len(set(sizes)) == 1:
        return [sizes[0]] * number
    return [None] * number
