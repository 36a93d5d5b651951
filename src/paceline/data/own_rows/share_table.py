"""The shares of rows by the number of a batch, where they change while batches are read ahead (``--shares auto``).

    batch     0  1  2  3  4  5  6  7  8  9 …
    shares    32,32 ─────────►│43,21 ───────►      changed in the message of step 2
                        ^ read ahead up to here, by the rank that reads furthest

A change holds from a batch on that no rank has taken its rows of. Each rank says in a step's first message up to which
batch that may be while the message lasts: a few more than it has taken its rows of by then. A reader that comes to the
end of them waits until the message is over. The message waits for no reader: this rank's rows of the step are there,
and other ranks that read are not in it yet.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.cluster.row_shares import begins
from paceline.data.batch_rows import local_slice, slice_by

Shares = tuple[int, ...]
Cut = Callable[[Any], tuple[Any, Any]]
"""From the rows of a global batch to those, [begin, end), that are this rank's."""

_AHEAD = 4
"""So many batches a rank may read during a message."""


class ShareTable:
    """Of the newest iterator over one rank's batches. Readers ask in their threads.

    Args:
        rank: This rank.
        size: Number of ranks that share the rows.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._changes: list[tuple[int, Shares]] = [(0, (1,) * size)]
        """From which batch on which shares hold, in order."""
        self._num_taken = 0
        """Batches up to the last one of which rows have been taken, in any order."""
        self._bound: int | None = None
        """While a message lasts: no rows of this batch are taken, nor of those behind it."""
        self._condition = threading.Condition()

    def begin(self, shares: Shares) -> None:
        """A new iterator is about to be made."""
        self.go_on([(0, shares)], 0)

    def go_on(self, changes: Sequence[tuple[int, Shares]], num_taken: int) -> None:
        """The new iterator goes on where another one was, whose `position` this is."""
        with self._condition:
            self._changes, self._num_taken = [*changes], num_taken

    @property
    def position(self) -> tuple[list[tuple[int, Shares]], int]:
        """The changes so far, and how many batches rows have been taken of."""
        with self._condition:
            return [*self._changes], self._num_taken

    def shares_of(self, number: int) -> Shares:
        """The shares of a batch, of which rows are about to be taken; waits while they may change."""
        with self._condition:
            self._condition.wait_for(lambda: self._bound is None or number < self._bound)
            self._num_taken = max(self._num_taken, number + 1)
            return next(shares for first, shares in reversed(self._changes) if first <= number)

    def bound(self) -> int:
        """How many batches rows may be taken of, from the first one on, up to `release`."""
        with self._condition:
            self._bound = self._num_taken + _AHEAD
            return self._bound

    def release(self) -> None:
        """Readers go on."""
        with self._condition:
            self._bound = None
            self._condition.notify_all()

    def change(self, first: int, shares: Shares) -> None:
        """From the batch `first` on the shares are others; before `release`, on all ranks.

        Args:
            first: The largest `bound` of a rank.
            shares: Of all ranks.
        """
        with self._condition:
            self._changes.append((first, shares))

    def cut(self, number: Any) -> Cut:
        """Where this rank's rows are in the batch of that number; it is asked for once.

        Args:
            number: An int, or an int64 scalar in a graph.
        """
        if not tf.is_tensor(number):
            shares = self.shares_of(int(number))
            return lambda rows: slice_by(shares, rows, self._rank)
        # TensorFlow keeps each function of Python's that a dataset calls until the process ends; not with it the table.
        asked = weakref.ref(self)

        def bounds(number: Any) -> Any:
            table = asked()
            if table is None:
                return np.ones(3, np.int64)  # who reads on reads nothing that anybody takes
            firsts = begins(table.shares_of(int(number)))
            return np.array([firsts[table._rank], firsts[table._rank + 1], firsts[-1]], np.int64)

        # Stateless for TensorFlow: a stateful function would forbid saving an iterator's position.
        found = tf.ensure_shape(tf.numpy_function(bounds, [number], tf.int64, stateful=False), [3])

        def own(rows: Any) -> tuple[Any, Any]:
            dtype = rows.dtype if tf.is_tensor(rows) else tf.int64
            begin, end = (tf.cast(tf.cast(rows, tf.int64) * found[at] // found[2], dtype) for at in (0, 1))
            return begin, end

        return own


def cut_of(table: ShareTable | None, number: Any, rank: int, size: int) -> Cut:
    """Where a rank's rows are in the batch of that number: as the table says, or in all batches alike."""
    return (lambda rows: local_slice(rows, rank, size)) if table is None else table.cut(number)
