"""Collectives as operations of a TensorFlow graph, whatever carries the bytes.

The two kinds stand in `bridged_collectives.py`: one leaves the graph and asks the group, the other one puts
TensorFlow's own collective operations into it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from paceline.comm.counted_group import CountedGroup
from paceline.comm.group import Reduction
from paceline.comm.world import World
from paceline.strategy import compat

_Function = TypeVar("_Function", bound=Callable[..., Any])


def as_written(function: _Function) -> _Function:
    """`function`, which runs as it is written, in graphs, too."""
    unconverted: _Function = tf.autograph.experimental.do_not_convert(function)
    return unconverted


class Turns:
    """The token of one process: whatever is built `in_turn` runs in the order in which it was built.

    TensorFlow runs operations that do not depend on each other in any order, `numpy_function`s and its own collectives
    among them: two collectives of one graph would run in one order on rank 0 and in another on rank 1, and each would
    meet the wrong peer. So each takes its turn at a *token*, a variable:

        read and write token ─► collective A ─► read and write token ─► collective B ─► …

    TensorFlow's automatic control dependencies keep operations on one variable in program order, through nested
    functions, conditionals and loops alike; a chain of control dependencies within one graph would end at its border.
    """

    def __init__(self) -> None:
        self._token: Any = None

    def in_turn(self, build: Callable[[], list[Any]]) -> list[Any]:
        """The tensors that `build` returns, whose operations come after all that took their turn before.

        Args:
            build: Builds operations in the current graph; eagerly it just runs, in order by nature.
        """
        if tf.executing_eagerly():
            return build()
        with tf.control_dependencies([self._take()]):
            results = build()
        with tf.control_dependencies(results):
            self._take()
        return results

    def _take(self) -> Any:
        """Reads and writes the token, which orders everything around it."""
        if self._token is None:
            with tf.init_scope(), tf.device("/device:CPU:0"):
                self._token = compat.ResourceVariable(0, trainable=False, dtype=tf.int64, name="paceline_turn")
        with tf.device("/device:CPU:0"):
            return self._token.assign_add(1, read_value=False)


class GraphCollectives(ABC):
    """A group's collectives on tensors, eagerly or inside `tf.function`.

    All methods are collective in the sense of `Group`: every rank builds and runs the same calls in one order.

    Args:
        world: This process's place in the job.
        group: Who talks. It is formed when the first collective runs, or is built.
    """

    def __init__(self, world: World, group: CountedGroup) -> None:
        self._world = world
        self._group = group
        self._turns = Turns()

    @as_written
    def all_reduce(self, tensors: Sequence[Any], reduction: Reduction = Reduction.SUM) -> list[Any]:
        """Combines each tensor over the ranks; shapes and dtypes as in, equal on all ranks."""
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if self._group.size == 1 or not tensors:
            return [tf.identity(tensor) for tensor in tensors]
        self._world.has_combined = True
        results = self._turns.in_turn(lambda: self._all_reduce(tensors, reduction))
        return _with_shapes(results, [tensor.shape for tensor in tensors])

    @as_written
    def count_rows(self, rows: Any) -> tuple[Any, Any]:
        """The sum of the ranks' rows, and how many of them are of ranks before this one: int64 scalars, as `rows`.

        Their flags (`comm/step_flags.py`) go with it where they can. Where they cannot, ranks are taken to have as many
        rows as `local_slice` says.
        """
        if self._group.size == 1:
            return tf.identity(rows), tf.zeros_like(rows)
        self._world.has_combined = True
        total, first = _with_shapes(self._turns.in_turn(lambda: self._count_rows(rows)), [rows.shape] * 2)
        return total, first

    @as_written
    def all_gather(self, tensor: Any) -> Any:
        """Concatenates the ranks' tensors along the first axis, in rank order; rows per rank may differ. Text, too."""
        tensor = tf.convert_to_tensor(tensor)
        if self._group.size == 1:
            return tf.identity(tensor)
        self._world.has_combined = True
        if tensor.dtype == tf.string:
            results = [_gathered_text(self.all_gather, tensor)]
        else:
            results = self._turns.in_turn(lambda: [self._all_gather(tensor)])
        [result] = _with_shapes(results, [tf.TensorShape([None]).concatenate(tensor.shape[1:])])
        return result

    @as_written
    def broadcast(self, tensors: Sequence[Any]) -> list[Any]:
        """The chief's tensors on every rank; shapes and dtypes equal on all ranks. Text, too."""
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if self._group.size == 1 or not tensors:
            return [tf.identity(tensor) for tensor in tensors]
        numbers = [tensor for tensor in tensors if tensor.dtype != tf.string]
        chiefs = iter(self._turns.in_turn(lambda: self._broadcast(numbers)) if numbers else [])
        results = [
            _broadcast_text(self.all_gather, self._group.rank, tensor) if tensor.dtype == tf.string else next(chiefs)
            for tensor in tensors
        ]
        return _with_shapes(results, [tensor.shape for tensor in tensors])

    @as_written
    def in_turn(self, build: Callable[[], list[Any]]) -> list[Any]:
        """What `build` returns; it runs behind the collectives that were built before, and before those built later.

        Args:
            build: Builds operations in the current graph. Must not build collectives.
        """
        return self._turns.in_turn(build)

    @abstractmethod
    def _count_rows(self, rows: Any) -> list[Any]:
        """As `count_rows`, in a group of several; in this process's turn."""

    @abstractmethod
    def _all_reduce(self, tensors: list[Any], reduction: Reduction) -> list[Any]:
        """As `all_reduce`, in a group of several, for at least one tensor; in this process's turn."""

    @abstractmethod
    def _all_gather(self, tensor: Any) -> Any:
        """As `all_gather`, in a group of several; in this process's turn."""

    @abstractmethod
    def _broadcast(self, tensors: list[Any]) -> list[Any]:
        """As `broadcast`, in a group of several, for at least one tensor; in this process's turn."""


def _with_shapes(tensors: list[Any], shapes: Sequence[Any]) -> list[Any]:
    """The tensors, which graphs now know the shapes of."""
    for tensor, shape in zip(tensors, shapes, strict=True):
        tensor.set_shape(shape)
    return tensors


def _gathered_text(all_gather: Callable[[Any], Any], texts: Any) -> Any:
    """The ranks' texts one below the other. What carries tensors carries numbers: text travels as bytes and lengths.

    ["ab", "", "xyz"]  ──►  lengths [2, 0, 3], bytes [97 98 120 121 122]  ──►  those of all ranks  ──►  text again

    Collective.

    Args:
        all_gather: Of numeric tensors, along the first axis.
        texts: A string tensor of at least one dimension; ranks may differ in the size of the first one only.
    """
    joined = tf.strings.reduce_join(tf.reshape(texts, [-1]))
    lengths = all_gather(tf.strings.length(texts))
    octets = all_gather(tf.io.decode_raw(joined, tf.uint8))
    every_octet = tf.constant([bytes([octet]) for octet in range(256)])
    num_octets = tf.reshape(lengths, [-1])
    places = tf.range(tf.size(num_octets))
    characters = tf.gather(every_octet, tf.cast(octets, tf.int32))
    flat = tf.strings.unsorted_segment_join(characters, tf.repeat(places, num_octets), tf.size(num_octets))
    return tf.reshape(flat, tf.shape(lengths))


def _broadcast_text(all_gather: Callable[[Any], Any], rank: int, texts: Any) -> Any:
    """The chief's texts on every rank. Collective.

    Args:
        all_gather: Of numeric tensors, along the first axis.
        rank: This rank.
        texts: A string tensor of any shape, equal on all ranks.
    """
    flat = tf.reshape(texts, [-1])
    return tf.reshape(_gathered_text(all_gather, flat if rank == 0 else flat[:0]), tf.shape(texts))
