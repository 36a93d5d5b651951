"""Builds the graph of one rank: values in every way that they are needed, sizes, copies of operations."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.spmd import compat
from paceline.spmd.account import Sent
from paceline.spmd.contents import of_sizes
from paceline.spmd.decisions import FIRST_ROW, OWN_ROWS, Decision, Need, Operation, Rebuilt, own
from paceline.spmd.messages import Messages
from paceline.spmd.placements import Open, Partial, Placement, R, Sharded, Spec
from paceline.spmd.sizes import ROWS, Size, Symbol


class Value:
    """A tensor of one worker, as this rank has it: in one way, or in several.

    Args:
        spec: What is known of the tensor.
        tensor: It, as `spec.placement` says.
        origins: The exchanged rows that it follows from, if all of it is computed on every rank.
    """

    def __init__(self, spec: Spec, tensor: Any, origins: frozenset[Sent] = frozenset()) -> None:
        self.spec = spec
        self.origins = origins
        self.ways: dict[Placement, Any] = {spec.placement: tensor}

    def inside(self) -> "Value":
        """The same value for an inner graph: what is made of it there stays there."""
        value = Value(self.spec, None, self.origins)
        value.ways = dict(self.ways)
        return value

    @property
    def tensor(self) -> Any:
        """The value as its spec says."""
        return self.ways[self.spec.placement]

    def needs_message(self, need: Need) -> bool:
        """Whether other ranks must send something before the value is at hand in this way."""
        return not (
            isinstance(need, Rebuilt) or need in self.ways or R in self.ways or isinstance(self.spec.placement, Open)
        )


class Builder:
    """Builds into the current graph, for one rank.

    Args:
        messages: The ranks.
        sizes: A tensor of int64 without dimensions, or a number, for each symbol that is known from the start.
        outer: The builder of the graph around this one.
    """

    def __init__(self, messages: Messages, sizes: dict[Symbol, Any], outer: "Builder | None" = None) -> None:
        self.messages = messages
        self._sizes = dict(sizes)
        self._sources: dict[Symbol, tuple[Any, int]] = {}
        self._computed: dict[Size, Any] = {}
        self._outer = outer
        self._filled: dict[int, tuple[Any, Any]] = {}

    def inner(self) -> "Builder":
        """A builder for a graph within the current one."""
        return Builder(self.messages, {}, self)

    # Sizes

    def _size_of(self, symbol: Symbol) -> Any:
        builder: Builder | None = self
        while symbol not in self._sizes:
            if builder is None:
                raise KeyError(symbol)
            if symbol in builder._sizes:
                self._sizes[symbol] = builder._sizes[symbol]
            elif symbol in builder._sources:  # read in this graph: graphs beside it do not see what it makes
                tensor, axis = builder._sources[symbol]
                self._sizes[symbol] = tf.shape(tensor, out_type=tf.int64)[axis]
            builder = builder._outer
        return self._sizes[symbol]

    def learn(self, spec: Spec, tensor: Any) -> None:
        """Where a size that the trace leaves open is one of this tensor's, this is where it is read."""
        if spec.element is not None:
            return
        for axis, size in enumerate(spec.dims or ()):
            if size.number is None and len(size.symbols) == 1:
                (symbol,) = size.symbols
                if symbol not in (ROWS, OWN_ROWS, FIRST_ROW) and size == Size.of(symbol) and not self._knows(symbol):
                    self._sources[symbol] = (tensor, axis)

    def _knows(self, symbol: Symbol) -> bool:
        return (
            symbol in self._sizes or symbol in self._sources or (self._outer is not None and self._outer._knows(symbol))
        )

    def size(self, size: Size) -> Any:
        """A size, as a number or a tensor of int64."""
        if size.number is not None:
            return size.number
        if size not in self._computed:
            self._computed[size] = size.value(self._size_of)
        return self._computed[size]

    def content(self, content: np.ndarray, dtype: Any, original: Any = None) -> Any:
        """A tensor with this content; where an entry is unknown, that of the original tensor."""
        sizes = [self.size(entry) if entry.known else None for entry in content.reshape(-1)]
        if all(isinstance(size, int) for size in sizes):
            return tf.constant(np.array(sizes, dtype=np.int64).reshape(content.shape), dtype)
        flat: Any = None if all(entry.known for entry in content.reshape(-1)) else tf.reshape(original, [-1])
        tensors = [tf.cast(flat[at] if size is None else size, dtype) for at, size in enumerate(sizes)]
        return tf.reshape(tf.stack(tensors), content.shape)

    def mean(self, op: Operation, inputs: list[Any], count: Size) -> Any:
        """This rank's addend of a mean over `count` entries of all ranks."""
        total = tf.reduce_sum(inputs[0], inputs[1], keepdims=op.get_attr("keep_dims"))
        return total / tf.cast(self.size(count), total.dtype)

    # Values in the way that they are needed

    def needed(self, value: Value, need: Need, like: Any) -> Any:
        """The tensor that an operation needs; without a message, so nothing that takes one."""
        if isinstance(need, Rebuilt):
            return self.content(need.content, like.dtype, value.ways.get(R))
        if need not in value.ways:
            value.ways[need] = self._made(value, need)
        return value.ways[need]

    def _made(self, value: Value, need: Placement) -> Any:
        if isinstance(value.spec.placement, Open):
            return self._made_for(value.spec, value.tensor, need) if isinstance(need, Sharded) else value.tensor
        whole = value.ways[R]
        if value.spec.element is not None:
            return self._list(value.spec, whole, need)
        if isinstance(need, Sharded):
            rows = self._own_rows(whole, need)
            self._shaped(value.spec.placed(need), rows)
            return rows
        if isinstance(need, Partial):
            return self.messages.addend(whole)
        raise AssertionError(need)

    def _own_rows(self, whole: Any, shard: Sharded) -> Any:
        rank = whole.shape.rank
        block = self.size(shard.block)
        begin: list[Any] = [tf.constant(0, tf.int64)] * rank
        length: list[Any] = [tf.constant(-1, tf.int64)] * rank
        begin[shard.dim] = self._size_of(FIRST_ROW) * block
        length[shard.dim] = self._size_of(OWN_ROWS) * block
        return tf.slice(whole, tf.stack(begin), tf.stack(length))

    def _made_for(self, spec: Spec, empty: Any, shard: Sharded) -> Any:
        """A list without an element as one of rows: if it was made for all rows, it is made again for own ones."""
        if spec.dims is None or not spec.dims[shard.dim].known:
            return empty
        sizes = [size if size.known else Size.of(-1) for size in spec.dims]
        sizes[shard.dim] = own(sizes[shard.dim])
        length = tf.raw_ops.TensorListLength(input_handle=empty)
        shape = self.content(of_sizes(sizes), tf.int32)
        return tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=length, element_dtype=spec.element)

    def _list(self, spec: Spec, whole: Any, need: Placement) -> Any:
        """A list of whole elements as one of rows or of addends."""
        if isinstance(need, Partial):
            return self.messages.addend(whole)
        assert isinstance(need, Sharded)
        items = compat.stacked(whole, spec.element, self._element_shape(spec.placed(R)))
        return compat.listed(self._own_rows(items, need.at(need.dim + 1)))

    def _element_shape(self, spec: Spec) -> Any:
        """The shape of an element of a list, as this rank has it: TensorFlow wants to know it if the list is empty."""
        if spec.dims is None:
            return None
        sizes = list(spec.dims)
        if spec.shard is not None:
            sizes[spec.shard.dim] = own(sizes[spec.shard.dim])
        return self.content(of_sizes(sizes), tf.int32)

    def exchanged_first(self, values: Iterable[Value]) -> list[Value]:
        """Of the values that operations wait for, those that are exchanged first: see `Messages.first_of`."""
        values = list(values)
        first = self.messages.first_of([value.tensor for value in values])
        return [value for value, is_first in zip(values, first, strict=True) if is_first]

    def exchange(self, values: Iterable[Value]) -> None:
        """Makes these values whole: all addends in one message, all rows in another."""
        values = list(values)
        partial = [value for value in values if isinstance(value.spec.placement, Partial)]
        sharded = [value for value in values if isinstance(value.spec.placement, Sharded)]
        if partial:
            sums = self.messages.sum([self._as_tensor(value) for value in partial])
            for value, total in zip(partial, sums, strict=True):
                self._whole(value, total)
        if sharded:
            parts = []
            for value in sharded:
                assert isinstance(value.spec.placement, Sharded)
                parts.append((self._as_tensor(value), value.spec.placement.dim + (value.spec.element is not None)))
            for value, all_rows in zip(sharded, self.messages.gather(parts), strict=True):
                self._whole(value, all_rows)

    def _as_tensor(self, value: Value) -> Any:
        if value.spec.element is None:
            return value.tensor
        return compat.stacked(value.tensor, value.spec.element, self._element_shape(value.spec))

    def _whole(self, value: Value, tensor: Any) -> None:
        if isinstance(value.spec.placement, Partial):
            value.spec = value.spec.placed(R)  # what follows starts from the sum; of rows it still starts from rows
        if value.spec.element is not None:
            value.ways[R] = compat.listed(tensor)
            return
        if value.spec.dims is not None:
            tensor.set_shape([size.number for size in value.spec.dims])
        value.ways[R] = tensor

    # Operations

    def run(self, op: Any, decision: Decision, values: list[Value]) -> list[Value]:
        """Builds an operation, as it was decided."""
        outputs = self._built(op, decision, values)
        results = []
        for spec, output in zip(decision.outputs, outputs, strict=True):
            self._shaped(spec, output)
            self.learn(spec, output)
            results.append(Value(spec, output))
        for other in decision.also:
            for value, spec, output in zip(results, other.outputs, self._built(op, other, values), strict=True):
                self._shaped(spec, output)
                value.ways[spec.placement] = output
        return results

    def _built(self, op: Any, decision: Decision, values: list[Value]) -> list[Any]:
        inputs = [
            self.needed(value, need, like) for value, need, like in zip(values, decision.needs, op.inputs, strict=True)
        ]
        if decision.build is not None:
            return decision.build(self, op, inputs)
        return self.copied(op, inputs)

    def copied(self, op: Operation, inputs: list[Any]) -> list[Any]:
        """The outputs of a copy of `op` on other inputs."""
        return list(compat.copied(op, inputs).outputs)

    @staticmethod
    def nothing() -> None:
        """An operation that does nothing, which others can wait for."""
        tf.no_op()

    def filled(self, own: Any, shard: Sharded) -> Any:
        """Own rows, or a row of zeros where there is none."""
        if id(own) not in self._filled:
            self._filled[id(own)] = own, self._with_a_row(own, shard.dim)
        return self._filled[id(own)][1]

    def is_filled(self, own: Any) -> bool:
        """Whether some operation has read, or made, `filled` of these own rows."""
        return id(own) in self._filled

    def emptied(self, tensor: Any, shard: Sharded) -> Any:
        """What was made of `filled` rows as own rows; `filled` of it is the tensor again."""
        length: list[Any] = [tf.constant(-1, tf.int64)] * tensor.shape.rank
        length[shard.dim] = self._size_of(OWN_ROWS) * self.size(shard.block)
        own = tf.slice(tensor, tf.zeros([tensor.shape.rank], tf.int64), tf.stack(length))
        self._filled[id(own)] = own, tensor
        return own

    def _with_a_row(self, own: Any, dim: int) -> Any:
        num_rows = self.num_own_rows()
        if isinstance(num_rows, int):
            return own if num_rows else tf.pad(own, [[0, int(axis == dim)] for axis in range(own.shape.rank)])
        shape = [tf.shape(own)[axis] if axis != dim else 1 for axis in range(own.shape.rank)]
        filled = tf.cond(num_rows > 0, lambda: own, lambda: tf.zeros(tf.stack(shape), own.dtype))
        filled.set_shape([size if axis != dim else None for axis, size in enumerate(own.shape.as_list())])
        return filled

    def num_own_rows(self) -> Any:
        """How many rows this rank has, as a tensor of int64."""
        return self._size_of(OWN_ROWS)

    @staticmethod
    def _shaped(spec: Spec, tensor: Any) -> None:
        """Tells TensorFlow the sizes that are numbers, where its own rules lose them."""
        if spec.element is not None or spec.dims is None or tensor.dtype in (tf.resource, tf.variant):
            return
        if tensor.shape.rank in (None, len(spec.dims)):
            shape = [size.number for size in spec.dims]
            if spec.shard is not None:
                shape[spec.shard.dim] = None
            tensor.set_shape(shape)
