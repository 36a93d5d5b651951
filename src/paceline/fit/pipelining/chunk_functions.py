"""The functions of a chunk: its graph (`chunk_trace.py`), cut where forward and backward meet.

    F   forward                    received ─► handed on, loss, states, stash
    B   gradients of the inputs    stash, gradients of what was handed on ─► gradients of what was received, rest
    W   gradients of the weights   stash, rest ─► sums of gradients
    BW  both in one call           stash, gradients of what was handed on ─► gradients of what was received, sums

The stash is what crosses from F to the others, so its bytes are known. What follows from weights alone is not stashed
but computed again: a schedule that is synchronous changes no weights between F and BW.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from paceline.errors import ConfigurationError
from paceline.fit.pipelining.chunk_trace import ChunkTrace

_READS = ("ReadVariableOp", "VarHandleOp", "Placeholder")
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceScatterUpdate")


@dataclass(eq=False)
class Pass:
    """One micro-batch on its way through a chunk.

    Args:
        feeds: By tensor of the graph, its value: data, rows, what has been received, totals, then the stash.
    """

    feeds: dict[Any, Any] = field(default_factory=dict)

    def feed(self, tensors: Sequence[Any], values: Iterable[Any]) -> None:
        """Remembers the values of tensors of the graph."""
        self.feeds.update(zip([tensor.ref() for tensor in tensors], values, strict=True))


class ChunkFunctions:
    """F, B, W, BW of one chunk.

    Args:
        trace: Its graph. Without gradients (a trace without training) there is F only.

    Raises:
        ConfigurationError: the graph has an assignment to what is no Keras variable.
    """

    def __init__(self, trace: ChunkTrace) -> None:
        self.trace = trace
        self.is_training = trace.is_training
        """Whether a backward follows."""
        _refuse_assignments(trace)
        forward = [*trace.handed_on, *trace.predictions, *trace.new_states, *_some(trace.loss)]
        rows_of_sums = [tensor for pair in trace.slices for tensor in pair]
        of_forward = _behind(forward)
        of_inputs = _behind(trace.received_gradients) - of_forward
        of_weights = _behind([*trace.new_sums, *rows_of_sums]) - of_forward
        fed = _Fed(trace)
        for_inputs = fed.crossing(of_forward, of_inputs)
        for_weights = fed.crossing(of_forward, of_weights - of_inputs)
        self._stash = list({tensor.ref(): tensor for tensor in [*for_inputs, *for_weights]}.values())
        self._forward = fed.function([], [*forward, *self._stash])
        self.num_parts = len(trace.part_of_total)
        self._parts = fed.function([], trace.part_of_total) if self.num_parts else None
        _refuse_parts(trace, self._parts)
        self._both = fed.function(self._stash, [*trace.received_gradients, *trace.new_sums, *rows_of_sums])
        rest = fed.crossing(of_inputs, of_weights - of_inputs)
        self._rest = rest
        self._inputs = fed.function(for_inputs, [*trace.received_gradients, *rest])
        self._weights = fed.function([*for_weights, *rest], [*trace.new_sums, *rows_of_sums])
        backward = (self._both, self._inputs, self._weights)
        self._kept = {feed.ref() for function in backward for feed in function.feeds}
        every = [self._forward, *backward, *([self._parts] if self._parts else [])]
        used = {feed.ref() for function in every for feed in function.feeds}
        self.read_data = [at for at, tensor in enumerate(trace.data) if tensor.ref() in used]
        """Which leaves of the data are read."""

    def parts_of_totals(self, one: Pass) -> list[Any]:
        """What a micro-batch adds to each total, which follows from its data alone."""
        return [] if self._parts is None else self._parts(one)

    def forward(self, one: Pass) -> tuple[list[Any], list[Any], list[Any], Any]:
        """F: what is handed on, the model's outputs, the new states, the share of the losses (None without any)."""
        trace = self.trace
        made = self._forward(one)
        handed_on, predictions, states, loss, stash = _split(
            made, [len(trace.handed_on), len(trace.predictions), len(trace.new_states), len(_some(trace.loss))]
        )
        one.feeds = {key: value for key, value in one.feeds.items() if key in self._kept}
        one.feed(self._stash, stash)
        return handed_on, predictions, states, loss[0] if loss else None

    def backward(self, one: Pass) -> tuple[list[Any], list[Any], list[Any]]:
        """BW: gradients of what was received, the new sums, (values, indices) of what was looked up, flat."""
        trace = self.trace
        received, sums, slices = _split(self._both(one), [len(trace.received_gradients), len(trace.new_sums)])
        return received, sums, slices

    def backward_inputs(self, one: Pass) -> list[Any]:
        """B: gradients of what was received."""
        received, rest = _split(self._inputs(one), [len(self.trace.received_gradients)])
        one.feed(self._rest, rest)
        return received

    def backward_weights(self, one: Pass) -> tuple[list[Any], list[Any]]:
        """W: the new sums, (values, indices) of what was looked up, flat."""
        sums, slices = _split(self._weights(one), [len(self.trace.new_sums)])
        return sums, slices


class _Fed:
    """The tensors of a graph that are given to each of its functions.

    Args:
        trace: The graph.
    """

    def __init__(self, trace: ChunkTrace) -> None:
        self._trace = trace
        self._given = [
            *(*trace.data, *trace.rows, *trace.received, *trace.given, *trace.sums, *trace.states, *trace.totals)
        ]
        self._keys = {tensor.ref() for tensor in self._given}
        self._of_micro_batch = self._reached()

    def crossing(self, sources: set[Any], targets: set[Any]) -> list[Any]:
        """The outputs of the operations `sources` that `targets` read: of each operation all or none, as TensorFlow
        lifts no operation of which some outputs are given.
        """
        read = {
            tensor.op: None
            for operation in targets
            for tensor in operation.inputs
            if tensor.op in sources and tensor.op in self._of_micro_batch and tensor.ref() not in self._keys
        }
        return [output for operation in read for output in operation.outputs]

    def function(self, stash: list[Any], fetches: list[Any]) -> "_Function":
        """A function of what is needed of `given`, and of all of `stash`: of an operation all outputs are given."""
        ends = {tensor.ref() for tensor in stash} | self._keys
        needed = _needed(fetches, ends)
        given = [tensor for tensor in self._given if tensor.ref() in needed]
        return _Function(self._trace.wrapped, [*given, *stash], fetches)

    def _reached(self) -> set[Any]:
        """The operations whose results depend on what is fed, or cannot be had twice, as numbers that are drawn."""
        operations = self._trace.wrapped.graph.get_operations()
        reached = {tensor.op for tensor in self._given}
        reached |= {one for one in operations if one.op_def.is_stateful and one.type not in _READS}
        readers: dict[Any, list[Any]] = {}
        for operation in operations:
            for tensor in operation.inputs:
                readers.setdefault(tensor.op, []).append(operation)
        left = list(reached)
        while left:
            found = [one for one in readers.get(left.pop(), ()) if one not in reached]
            reached.update(found)
            left += found
        return reached


class _Function:
    """A part of a graph, called with what a `Pass` knows.

    Args:
        wrapped: The graph.
        feeds: Tensors of it that are given.
        fetches: Tensors of it that are wanted; one that is given, too, is handed through.
    """

    def __init__(self, wrapped: Any, feeds: list[Any], fetches: list[Any]) -> None:
        self.feeds = feeds
        pruned = wrapped.prune(feeds, fetches)
        # A pruned function's own `__call__` takes 25 ms: it formats all arguments for an error first.
        self._function = tf.function(
            lambda *arguments: pruned(*arguments),
            input_signature=[tf.TensorSpec(feed.shape, feed.dtype) for feed in feeds],
            autograph=False,
        )

    def __call__(self, one: Pass) -> list[Any]:
        return list(self._function(*[one.feeds[feed.ref()] for feed in self.feeds]))


def _behind(tensors: Sequence[Any]) -> set[Any]:
    """The operations that compute `tensors`."""
    found: set[Any] = set()
    left = [tensor.op for tensor in tensors]
    while left:
        operation = left.pop()
        if operation not in found:
            found.add(operation)
            left += [tensor.op for tensor in operation.inputs]
            left += operation.control_inputs
    return found


def _needed(fetches: Sequence[Any], ends: set[Any]) -> set[Any]:
    """Which of the tensors `ends` the computation of `fetches` begins with."""
    found, seen = set(), set()
    left = list(fetches)
    while left:
        tensor = left.pop()
        key = tensor.ref()
        if key in ends:
            found.add(key)
        elif tensor.op not in seen:
            seen.add(tensor.op)
            left += tensor.op.inputs
            left += [output for control in tensor.op.control_inputs for output in control.outputs[:1]]
    return found


def _some(value: Any) -> list[Any]:
    return [] if value is None else [value]


def _split(values: Sequence[Any], lengths: Sequence[int]) -> list[list[Any]]:
    """Parts of these lengths, and the rest."""
    parts, begin = [], 0
    for length in lengths:
        parts.append(list(values[begin : begin + length]))
        begin += length
    return [*parts, list(values[begin:])]


def _refuse_parts(trace: ChunkTrace, parts: "_Function | None") -> None:
    known = {tensor.ref() for tensor in [*trace.data, *trace.rows]}
    if parts is not None and any(feed.ref() not in known for feed in parts.feeds):
        raise ConfigurationError(
            "A loss or layer adds up what layers compute for all rows of a batch (such as "
            "BatchNormalization with synchronized=True, or a mask that depends on weights): a micro-batch does not know"
            " it. Leave it out, or train without a pipeline. [pipeline]"
        )


def _refuse_assignments(trace: ChunkTrace) -> None:
    found = [one.name for one in trace.wrapped.graph.get_operations() if one.type in _ASSIGNMENTS]
    if found:
        raise ConfigurationError(
            f"A layer assigns a tf.Variable (operation {found[0]}), and a pipeline could lose the assignment: make the "
            "variable with self.add_weight. [pipeline]"
        )
