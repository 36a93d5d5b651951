"""Walks the plan of one stage: computes, sends, receives, and adds up what a batch leaves behind.

    plan.actions[stage]:  Receive ─► Compute ─► Send ─► Receive ─► Compute ─► …
                            │                              │
                          asked for one computation ahead ─┘

What is handed from one chunk to another one of this stage needs no message.
"""

import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from paceline.fit.pipelining.chunk_functions import ChunkFunctions, Pass
from paceline.fit.pipelining.chunk_trace import is_floating
from paceline.fit.pipelining.chunks import Chunks
from paceline.fit.pipelining.gradient_sums import GradientSums
from paceline.fit.pipelining.stage_messages import Arrival, StageMessages
from paceline.plan.actions import Action, Compute, Message, Operation, Plan, Receive, Send


@dataclass
class ChunkSums:
    """What the micro-batches of a batch have left in one chunk.

    Args:
        states: Of `assigned`: after the last micro-batch, or for `averaged` ones the shares so far.
        sums: Of `summed`, the handles of the variables to which gradients are added.
        slices: Of `looked_up`, a list with the values of each micro-batch, then one with the indices.
        losses: The share of the losses of each micro-batch, if there are any.
        predictions: Of the last chunk: for each micro-batch the model's outputs, if they are wanted.
    """

    states: list[Any]
    sums: list[Any]
    slices: list[list[Any]] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    predictions: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Batch:
    """A global batch.

    Args:
        leaves: Of (x, y, sample_weight).
        bounds: (first row, end) of each micro-batch of this replica.
    """

    leaves: list[Any]
    bounds: list[tuple[int, int]]

    @property
    def num_rows(self) -> int:
        """Of all replicas."""
        return int(self.leaves[0].shape[0])

    def signature(self, micro_batch: int) -> Hashable:
        """What the shapes of everything that is made of a micro-batch follow from."""
        begin, end = self.bounds[micro_batch]
        return end - begin, self._shapes

    @functools.cached_property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(leaf.shape[1:]) for leaf in self.leaves)


class StageWalk:
    """One batch on one stage.

    Args:
        plan: Of as many micro-batches as the batch has.
        stage: This rank's.
        chunks: Of the model.
        functions: By number, of the chunks of this stage.
        messages: Of this rank.
        gradient_sums: Of this stage.
        batch: What to compute.
    """

    def __init__(
        self,
        plan: Plan,
        stage: int,
        chunks: Chunks,
        functions: Mapping[int, ChunkFunctions],
        messages: StageMessages,
        gradient_sums: GradientSums,
        batch: Batch,
    ) -> None:
        self._plan, self._stage, self._chunks = plan, stage, chunks
        self._functions, self._messages, self._batch = functions, messages, batch
        self._gradient_sums, self._has_begun = gradient_sums, False
        self._passes: dict[tuple[int, int], Pass] = {}
        self._recomputed: set[tuple[int, int]] = set()
        self._arrivals: dict[Message, Arrival] = {}
        self._handed: dict[Message, list[Any]] = {}
        self._beginnings = {number: _states(one) for number, one in functions.items()}
        self.sums = {
            number: ChunkSums(
                [
                    tf.zeros_like(value) if any(variable is one for one in function.trace.averaged) else value
                    for variable, value in zip(function.trace.assigned, self._beginnings[number], strict=True)
                ],
                gradient_sums.handles(function.trace.summed),
                [[] for _ in range(2 * len(function.trace.looked_up))],
            )
            for number, function in functions.items()
        }
        self._totals = {number: self._totals_of(function) for number, function in functions.items()}

    def run(self, actions: Sequence[Action]) -> dict[int, ChunkSums]:
        """Does what `actions`, all or some of the plan's, say; by chunk, what they leave."""
        self._recomputed = {
            (action.chunk, action.micro_batch)
            for action in actions
            if isinstance(action, Compute) and action.operation is Operation.RECOMPUTE
        }
        ahead = 0
        for at, action in enumerate(actions):
            match action:
                case Receive(message):
                    ahead = max(ahead, at)
                    self._ask(action)
                    self._begin_sums()  # the stage would be idle
                    self._handed[message] = self._wait(message)
                case Compute(operation, chunk, number):
                    ahead = self._ask_ahead(actions, max(ahead, at + 1))
                    self._compute(operation, chunk, number)
                case Send(message, peer, tag):
                    self._send(message, peer, tag)
        return self.sums

    def _begin_sums(self) -> None:
        if not self._has_begun:
            self._gradient_sums.begin([weight for one in self._functions.values() for weight in one.trace.summed])
            self._has_begun = True

    def _send(self, message: Message, peer: int, tag: int) -> None:
        tensors = self._handed.pop(message)
        if message.is_gradient:
            self._messages.send(tensors, peer, tag)
            return
        signature = self._batch.signature(message.micro_batch)
        self._messages.send(tensors, peer, tag, signature)
        shapes = [tuple(tensor.shape) for tensor in tensors if is_floating(tensor)]
        gradients = self._plan.shape.tag(message.source, message.target, True)
        self._messages.know(shapes, peer, gradients, _of_gradients(signature))

    def _ask_ahead(self, actions: Sequence[Action], at: int) -> int:
        """Asks for what the next computation reads; it arrives while this one computes."""
        for index in range(at, len(actions)):
            if isinstance(action := actions[index], Receive):
                self._ask(action)
            elif isinstance(action, Compute):
                return index
        return len(actions)

    def _ask(self, action: Receive) -> None:
        message = action.message
        if message in self._arrivals:
            return
        tensors = self._chunks.edges[message.source, message.target]
        signature: Hashable = self._batch.signature(message.micro_batch)
        if message.is_gradient:
            tensors, signature = tuple(filter(is_floating, tensors)), _of_gradients(signature)
        arrival = self._messages.receive(tensors, action.peer, action.tag, signature)
        arrival.ask_if_known()
        self._arrivals[message] = arrival

    def _wait(self, message: Message) -> list[Any]:
        return self._arrivals.pop(message).wait()

    def _compute(self, operation: Operation, chunk: int, number: int) -> None:
        match operation:
            case Operation.FORWARD:
                self._forward(chunk, number)
            case Operation.RECOMPUTE:
                self._functions[chunk].recompute(self._passes[chunk, number])
            case _:
                self._backward(operation, chunk, number)

    def _forward(self, chunk: int, number: int) -> None:
        functions, left = self._functions[chunk], self.sums[chunk]
        trace = functions.trace
        one = self._passes[chunk, number] = self._with_data(functions, *self._batch.bounds[number])
        one.feed(trace.received, self._collected(chunk, number))
        one.feed(trace.totals, self._totals[chunk])
        one.feed(trace.states, self._states_before(chunk))
        is_recomputed = (chunk, number) in self._recomputed
        handed_on, predictions, states, loss = functions.forward(one, is_recomputed=is_recomputed)
        if not functions.is_training:
            del self._passes[chunk, number]
        for at, (variable, state) in enumerate(zip(trace.assigned, states, strict=True)):
            is_share = any(variable is averaged for averaged in trace.averaged)
            left.states[at] = left.states[at] + state if is_share else state
        if loss is not None:
            left.losses.append(loss)  # an addition here would cost each micro-batch some 80 microseconds
        left.predictions.append(predictions)
        made = dict(zip(map(id, self._chunks.chunks[chunk].handed_on), handed_on, strict=True))
        for (source, target), tensors in self._chunks.edges.items():
            if source == chunk:
                self._handed[Message(chunk, target, number, False)] = [made[id(tensor)] for tensor in tensors]

    def _backward(self, operation: Operation, chunk: int, number: int) -> None:
        functions, left = self._functions[chunk], self.sums[chunk]
        one = self._passes[chunk, number]
        received: list[Any] = []
        if operation.gives_input_gradients:
            one.feed(functions.trace.given, self._given(chunk, number))
        if operation.gives_weight_gradients:
            self._begin_sums()
            one.feed(functions.trace.sums, left.sums)
        match operation:
            case Operation.BACKWARD:
                received, slices = functions.backward(one)
            case Operation.BACKWARD_INPUTS:
                received, slices = functions.backward_inputs(one), []
            case _:
                slices = functions.backward_weights(one)
        for at, value in enumerate(slices):
            left.slices[at].append(value)
        if operation.gives_weight_gradients:
            del self._passes[chunk, number]
        if operation.gives_input_gradients:
            self._hand_back(chunk, number, received)

    def _with_data(self, functions: ChunkFunctions, begin: int, end: int) -> Pass:
        one, trace = Pass(), functions.trace
        one.feed(trace.rows, [tf.constant(end - begin, tf.int32), *_int64(begin, self._batch.num_rows)])
        for at in functions.read_data:
            one.feed([trace.data[at]], [self._batch.leaves[at]])
        return one

    def _states_before(self, chunk: int) -> list[Any]:
        trace = self._functions[chunk].trace
        return [
            now if any(variable is threaded for threaded in trace.threaded) else begun
            for variable, begun, now in zip(
                trace.assigned, self._beginnings[chunk], self.sums[chunk].states, strict=True
            )
        ]

    def _totals_of(self, functions: ChunkFunctions) -> list[Any]:
        """The denominators of the batch, which follow from the data: no replica need ask another one."""
        return functions.totals(self._with_data(functions, 0, self._batch.num_rows)) if functions.trace.totals else []

    def _collected(self, chunk: int, number: int) -> list[Any]:
        """What the chunk receives, from messages and from chunks of this stage, in its order."""
        found: dict[int, Any] = {}
        for (source, target), tensors in self._chunks.edges.items():
            if target == chunk:
                values = self._handed.pop(Message(source, chunk, number, False))
                found.update(zip(map(id, tensors), values, strict=True))
        return [found[id(tensor)] for tensor in self._chunks.chunks[chunk].received]

    def _given(self, chunk: int, number: int) -> list[Any]:
        """The gradients of what the chunk has handed on: of one that several chunks have read, the sum."""
        found: dict[int, Any] = {}
        for (source, target), tensors in self._chunks.edges.items():
            if source == chunk:
                values = self._handed.pop(Message(chunk, target, number, True))
                for tensor, value in zip(filter(is_floating, tensors), values, strict=True):
                    found[id(tensor)] = found[id(tensor)] + value if id(tensor) in found else value
        return [found[id(tensor)] for tensor in self._chunks.chunks[chunk].handed_on if is_floating(tensor)]

    def _hand_back(self, chunk: int, number: int, gradients: list[Any]) -> None:
        floating = filter(is_floating, self._chunks.chunks[chunk].received)
        found = {id(tensor): gradient for tensor, gradient in zip(floating, gradients, strict=True)}
        for (source, target), tensors in self._chunks.edges.items():
            if target == chunk:
                own = [found[id(tensor)] for tensor in tensors if is_floating(tensor)]
                self._handed[Message(source, chunk, number, True)] = own


def _of_gradients(signature: Hashable) -> Hashable:
    return "gradients", signature


def _states(functions: ChunkFunctions) -> list[Any]:
    return [tf.convert_to_tensor(variable._value) for variable in functions.trace.assigned]


def _int64(*values: int) -> list[Any]:
    return [tf.constant(value, tf.int64) for value in values]
