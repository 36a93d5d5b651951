"""Into how many shards a variable is divided, and which rows are in each."""

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from paceline.strategy.per_thread import PerThread

_MANY_ROWS = 1 << 30


def row_ranges(num_rows: int, num_shards: int) -> list[range]:
    """The rows of each shard: neighbours, in order, as TensorFlow's own ShardedVariable has them.

    >>> row_ranges(10, 4)
    [range(0, 3), range(3, 6), range(6, 8), range(8, 10)]
    """
    base, extra = divmod(num_rows, num_shards)
    begins = [shard * base + min(shard, extra) for shard in range(num_shards + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(begins)]


class SwitchedPartitioner:
    """The user's partitioner for TensorFlow, which asks it about each variable; silent while Keras makes one.

    A Keras variable is one variable for its users, and so must be made in one piece by `parameter_server/tables/`.
    TensorFlow would divide it by itself.

    Args:
        partitioner: A `tf.distribute.experimental.partitioners.Partitioner`.
    """

    def __init__(self, partitioner: Any) -> None:
        self._partitioner = partitioner
        self._is_silent = PerThread(False)

    def __call__(self, shape: Any, dtype: Any, axis: int = 0) -> Sequence[int]:
        """How many parts each axis of a variable is divided into."""
        if self._is_silent.value:
            return [1] * len(shape)
        answer: Sequence[int] = self._partitioner(shape=shape, dtype=dtype, axis=axis)
        return answer

    def silenced(self) -> AbstractContextManager[None]:
        """While this lasts, each variable that this thread makes lies on one server."""
        return self._is_silent.replaced(True)

    def num_shards(self, name: str, shape: Sequence[int], dtype: str, *, is_table: bool) -> int:
        """Into how many shards, by rows, a variable is divided.

        Args:
            name: The variable's, for the message.
            shape: Its own.
            dtype: Its own.
            is_table: Whether its rows are looked up: it must have as many rows as the user wants shards. Other
                variables, such as a bias, get no more shards than rows.

        Raises:
            ValueError: the partitioner wants more shards than the table has rows, or divides another axis.
        """
        if not shape:
            return 1
        asked, kind = tf.TensorShape(shape), tf.as_dtype(dtype)
        counts = list(self(asked, kind))
        if len(counts) != len(shape) or counts[0] < 1 or any(count != 1 for count in counts[1:]):
            raise ValueError(
                f"the variable partitioner answers {counts} for {name} with the shape {tuple(shape)}: expected one "
                "number per axis, from 1 on for the rows, and 1 for every other axis. [shards]"
            )
        wanted = counts[0]
        if isinstance(self._partitioner, tf.distribute.experimental.partitioners.FixedShardsPartitioner):
            # It hides how many it was told: it answers with the rows, where these are fewer.
            wanted = self(tf.TensorShape([_MANY_ROWS, *shape[1:]]), kind)[0]
        if is_table and wanted > shape[0]:
            raise ValueError(
                f"the variable partitioner wants {wanted} shards of {name}, which has {shape[0]} rows: take at most "
                f"{shape[0]} shards, or MinSizePartitioner(max_shards={wanted}), which leaves small tables whole. "
                "[shards]"
            )
        return int(min(wanted, shape[0]))
