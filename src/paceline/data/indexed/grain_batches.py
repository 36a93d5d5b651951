"""Batches of a data set of Grain, read by the numbers of their rows: each rank asks for its own rows only.

Keras makes a generator of a Grain data set, so every rank would make all rows. A `MapDataset` whose last operation is
`.batch(…)` is cut before it instead (`index_source.py`). Others stay as Keras has them. Grain is not imported here: its
class is known by name, as Keras knows it, and what is asked of it is public.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from paceline.data.indexed.by_index import batches_of_rows
from paceline.data.indexed.readings import NOT_SHUFFLED

_ENDLESS_ROWS = 1 << 53
"""From so many on Grain counts batches in floating numbers."""


def by_index(data: Any) -> Any:
    """A `tf.data.Dataset` of the batches of a Grain `MapDataset` that ends with `.batch(…)`; else `data` itself."""
    rows = _rows_before_batch(data)
    if rows is None:
        return data
    first = data[0]
    batch_size, num_batches = _num_rows(first), len(data)
    full = len(rows) // batch_size
    is_endless = len(rows) >= _ENDLESS_ROWS
    if not (is_endless or num_batches in (full, -(-len(rows) // batch_size))) or not _is_stacked(first, rows):
        return data  # a `batch_fn` of the script's own
    drops = is_endless or num_batches == full
    return batches_of_rows(_Rows(rows), batch_size, drop_remainder=drops, number=NOT_SHUFFLED, name="Grain's rows")


class _Rows:
    """Grain's rows, whose lists are tuples, as Keras has them."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Any:
        return _without_lists(self._rows[row])


def _without_lists(row: Any) -> Any:
    if isinstance(row, dict):
        return {name: _without_lists(part) for name, part in row.items()}
    return tuple(map(_without_lists, row)) if isinstance(row, list | tuple) else row


def _rows_before_batch(data: Any) -> Any:
    """The data set that one of batches is made of; None: `data` is something else, or empty."""
    kind = type(data)
    is_batched = kind.__name__ == "BatchMapDataset" and kind.__module__.split(".")[0] == "grain"
    parents = list(getattr(data, "parents", ())) if is_batched else []
    return parents[0] if len(parents) == 1 and len(data) else None


def _num_rows(batch: Any) -> int:
    return len(tf.nest.flatten(batch)[0])


def _is_stacked(batch: Any, rows: Any) -> bool:
    """Whether the first batch is its rows, one below the other."""
    own = [tf.nest.flatten(rows[row]) for row in range(_num_rows(batch))]
    whole = tf.nest.flatten(batch)
    columns = [np.stack(column) for column in zip(*own, strict=True)]
    return len(whole) == len(columns) and all(
        np.shape(one) == other.shape and np.asarray(one).tobytes() == other.tobytes()
        for one, other in zip(whole, columns, strict=True)
    )
