"""Whether a map behind `batch` makes a row for each row, so that a rank may call it for its own rows only.

A function that the script has marked does (`element_wise`). Of others the rules for operations are asked that also
divide a step (`spmd/row_by_row.py`).
"""

from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.own_rows.marked_functions import is_element_wise
from paceline.spmd.row_by_row import is_row_by_row, of_own_rows

_FOUND = "_paceline_row_wise"


def is_row_wise(dataset: Any) -> bool:
    """Whether a map's function, given some rows of a batch, returns these rows of what it returns for the batch.

    Where its number of rows is part of what has been traced (`drop_remainder`), that becomes the number of own rows
    (`rows_of_map`).

    Args:
        dataset: A map stage, whose elements are dense batches.
    """
    if not hasattr(dataset, _FOUND):
        setattr(dataset, _FOUND, _is_row_wise(dataset))
    return bool(getattr(dataset, _FOUND))


def rows_of_map(dataset: Any, own: range, flat: list[Any]) -> list[Any]:
    """What the function of a map makes of some rows of a batch; in a graph.

    Args:
        dataset: A map stage that is row-wise.
        own: The numbers of these rows in each batch, where all batches have as many.
        flat: The tensors of these rows.
    """
    traced, num_rows = compat.traced_function_of(dataset), fixed_rows(dataset)
    if num_rows is None:
        return list(traced(*flat))
    for tensor in flat:
        tensor.set_shape([len(own), *tensor.shape[1:]])
    return of_own_rows(traced, [True] * len(flat), num_rows, own, flat)


def fixed_rows(dataset: Any) -> int | None:
    """How many rows the batches before a map have, if that is part of what has been traced (`drop_remainder`)."""
    sizes = {leaf.shape[0] for leaf in _leaves_before(dataset)}
    return sizes.pop() if len(sizes) == 1 else None


def _is_row_wise(dataset: Any) -> bool:
    leaves = _leaves_before(dataset)
    if not leaves or not all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank for leaf in leaves):
        return False
    traced, num_rows = compat.traced_function_of(dataset), fixed_rows(dataset)
    if traced is None or len({leaf.shape[0] for leaf in leaves}) > 1:
        return False
    if num_rows is None and is_element_wise(compat.given_function_of(dataset)):
        return True
    if num_rows is not None and num_rows < 2:  # where a dimension of one entry may be the rows, or be broadcast
        return False
    with tf.init_scope():
        return is_row_by_row(traced, [True] * len(leaves), num_rows)


def _leaves_before(dataset: Any) -> list[Any]:
    [source] = compat.inputs_of(dataset)
    return list(tf.nest.flatten(source.element_spec))
