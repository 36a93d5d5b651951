"""A traced graph as one list of operations: calls of functions are written out, what nobody needs is left out.

A call of a function that says what it implements, if a rule knows that, stays one operation.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.spmd import compat
from paceline.spmd.compat import CALLS
from paceline.spmd.rules.own_rows import NAME as SUM_OVER_OWN_ROWS


class Ref:
    """A tensor of a program, before there is a tensor for it."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Node:
    """An operation of a program.

    Args:
        op: The traced operation.
        inputs: What it reads.
        outputs: What it makes.
        before: The numbers of the nodes that must have run before, besides those that make its inputs.
    """

    op: Any
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    before: frozenset[int]


@dataclass(frozen=True, eq=False)
class Program:
    """The operations of a graph, each after those that it needs."""

    nodes: tuple[Node, ...]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]


def program_of(graph: Any) -> Program:
    """The program of a traced graph."""
    inputs = {id(tensor): Ref() for tensor in graph.inputs}
    nodes: list[Node] = []
    refs = dict(inputs)
    _write_out(graph, refs, frozenset(), nodes)
    outputs = tuple(refs[id(tensor)] for tensor in graph.outputs)
    return Program(_needed(nodes, outputs), tuple(inputs[id(tensor)] for tensor in graph.inputs), outputs)


def without_data(program: Program, num_inputs: int) -> Program:
    """What of a program has effects and waits for none of its first inputs: it makes no output.

    TensorFlow has run these operations by the time that the data of a step turn out to have ended.
    """
    data = set(program.inputs[:num_inputs])
    waiting: set[int] = set()
    for number, node in enumerate(program.nodes):
        if node.before & waiting or data.intersection(node.inputs):
            waiting.add(number)
            data.update(node.outputs)
    effects = [number for number, node in enumerate(program.nodes) if number not in waiting and has_effect(node.op)]
    return Program(_chosen(program.nodes, _behind(program.nodes, (), effects)), program.inputs, ())


def has_effect(op: Any) -> bool:
    """Whether an operation does more than make its outputs."""
    return bool(op.op_def is not None and op.op_def.is_stateful)


def _write_out(graph: Any, refs: dict[int, Ref], before: frozenset[int], nodes: list[Node]) -> frozenset[int]:
    """Adds the operations of `graph` to `nodes`; returns those that whoever waits for the graph waits for."""
    ends: dict[Any, frozenset[int]] = {}
    effects: set[int] = set(before)
    for op in _ordered(graph):
        waited = frozenset().union(*(ends[other] for other in op.control_inputs)) if op.control_inputs else frozenset()
        if op.type == "Placeholder":
            ends[op] = before
            continue
        if op.type in CALLS and compat.implemented_by(op) != SUM_OVER_OWN_ROWS:
            body = compat.body(op, op.get_attr("f").name)
            inner = {id(inside): refs[id(outside)] for inside, outside in zip(body.inputs, op.inputs, strict=True)}
            ends[op] = _write_out(body, inner, before | waited, nodes)
            # A graph that gradients were taken of has more outputs by now: what its backward needs, at the end.
            for inside, outside in zip(body.outputs[: len(op.outputs)], op.outputs, strict=True):
                refs[id(outside)] = inner[id(inside)]
            effects |= ends[op]
            continue
        outputs = tuple(Ref() for _ in op.outputs)
        refs.update((id(tensor), ref) for tensor, ref in zip(op.outputs, outputs, strict=True))
        if has_effect(op):
            waited |= before
        nodes.append(Node(op, tuple(refs[id(tensor)] for tensor in op.inputs), outputs, waited))
        ends[op] = frozenset((len(nodes) - 1,))
        if has_effect(op):
            effects.add(len(nodes) - 1)
    return frozenset(effects)


def _ordered(graph: Any) -> list[Any]:
    """The operations of a graph, each after those that it needs: read from a definition, they come in any order."""
    done: set[Any] = set()
    ordered: list[Any] = []
    for root in graph.get_operations():
        stack = [root]
        while stack:
            op = stack[-1]
            if op in done:
                stack.pop()
                continue
            waits = [other for other in (*(tensor.op for tensor in op.inputs), *op.control_inputs) if other not in done]
            if waits:
                stack.extend(waits)
            else:
                done.add(op)
                ordered.append(op)
                stack.pop()
    return ordered


def in_order(nodes: Sequence[Node], inputs: tuple[Ref, ...], outputs: tuple[Ref, ...]) -> Program | None:
    """The program of these nodes, which may come in any order; None if some of them wait for each other."""
    order = Order(Program(tuple(nodes), inputs, outputs))
    numbers = []
    while order.ready:
        numbers.append(order.next())
        order.done(numbers[-1])
    if len(numbers) < len(nodes):
        return None
    return Program(_chosen(nodes, numbers), inputs, outputs)


def _needed(nodes: Sequence[Node], outputs: Iterable[Ref]) -> tuple[Node, ...]:
    """The nodes that outputs or effects need, with their numbers anew."""
    effects = [number for number, node in enumerate(nodes) if has_effect(node.op)]
    return _chosen(nodes, _behind(nodes, outputs, effects))


def _behind(nodes: Sequence[Node], outputs: Iterable[Ref], numbers: Iterable[int]) -> list[int]:
    """The numbers of the nodes that these outputs and these nodes need, and of these nodes, in order."""
    wanted = set(outputs)
    waited = set(numbers)
    kept: list[int] = []
    for number in range(len(nodes) - 1, -1, -1):
        node = nodes[number]
        if number in waited or any(ref in wanted for ref in node.outputs):
            kept.append(number)
            wanted.update(node.inputs)
            waited |= node.before
    return kept[::-1]


def _chosen(nodes: Sequence[Node], numbers: Sequence[int]) -> tuple[Node, ...]:
    """These nodes, each of which comes after those that it needs, with their numbers anew."""
    new = {number: index for index, number in enumerate(numbers)}
    return tuple(
        Node(
            nodes[number].op,
            nodes[number].inputs,
            nodes[number].outputs,
            frozenset(new[each] for each in nodes[number].before),
        )
        for number in numbers
    )


class Order:
    """Which nodes of a program can be built: those before them are, and those that make their inputs.

    Of several, the first of the program: every rank builds messages in the same order.
    """

    def __init__(self, program: Program) -> None:
        self._nodes = program.nodes
        self._missing = [0] * len(program.nodes)
        self._followers: dict[int, list[int]] = {}
        makers = {ref: number for number, node in enumerate(program.nodes) for ref in node.outputs}
        for number, node in enumerate(program.nodes):
            before = {makers[ref] for ref in node.inputs if ref in makers} | node.before
            self._missing[number] = len(before)
            for other in before:
                self._followers.setdefault(other, []).append(number)
        self.ready = [number for number, count in enumerate(self._missing) if not count]

    def next(self) -> int:
        """Takes the first node that can be built."""
        return heapq.heappop(self.ready)

    def done(self, number: int) -> None:
        """Tells that a node is built."""
        for follower in self._followers.get(number, ()):
            self._missing[follower] -= 1
            if not self._missing[follower]:
                heapq.heappush(self.ready, follower)
