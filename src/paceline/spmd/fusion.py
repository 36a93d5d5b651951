"""Kernel fusion: element-wise updates of variables become one operation, one pass over memory. Pure.

An optimizer's update is a dozen operations for each weight, and each of them reads and writes as much memory as the
weight has. Nothing but the new values is needed of them:

    read w, m ─┐
    gradient ──┼─► Sub, Mul, AssignAdd, Sqrt, RealDiv, …  ─► w, m        a region, which becomes one loop (`loops.py`)
    numbers ───┘

No optimizer is known here. A region is what assignments of variables are computed of, as far as operations can be lines
of a loop (`fusible.py`). The rest stays outside, and gives the region vectors (the gradient) and numbers (the learning
rate, a norm of all gradients).

What is outside may wait for a region, and a region for what is outside: a constraint sums a weight's new value. So
regions have levels, each of which waits for those before it, and all regions of one level run together. Who needs a
value from within a region, such as a norm of clipped gradients, has a copy of its operations outside.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.spmd.decisions import Decision
from paceline.spmd.fusible import ASSIGNMENTS, READ, Lines, shape_of
from paceline.spmd.loops import Line, Loop
from paceline.spmd.placements import R
from paceline.spmd.programs import Node, Program, Ref, has_effect, in_order

_MOST_VARIABLES = 32
"""Of one loop. Updates of a weight have two to six; variables that depend on each other may be hundreds."""


@dataclass(frozen=True, eq=False)
class Update:
    """A loop, and what it is given.

    Args:
        loop: What is computed.
        shape: Of its vectors and variables.
        numbers: Which inputs of the operation are its numbers.
        vectors: Which are its vectors.
        variables: Which are the handles of its variables.
    """

    loop: Loop
    shape: tuple[int, ...]
    numbers: tuple[int, ...]
    vectors: tuple[int, ...]
    variables: tuple[int, ...]


class Updates(Protocol):
    """Who runs loops in a graph."""

    @property
    def least_entries(self) -> int:
        """Of a variable with fewer, the operations of the graph may be faster than a loop."""
        ...

    def build(self, updates: Sequence[Update], inputs: Sequence[Any]) -> None:
        """Adds operations to the current graph that assign to each variable what its loop computes of all.

        Operations that wait for the last one that is built here wait for all assignments.

        Args:
            updates: No variable is in two of them.
            inputs: Tensors, whole, and handles of variables.
        """
        ...


@dataclass(frozen=True, eq=False)
class FusedUpdates:
    """All regions of one level: an operation that only programs have.

    Args:
        updates: The loops.
        inputs: The traced tensors that they read.
        runner: Who builds them.
        name: Among the operations of a program.
        traceback: Where the script has the first of its assignments.
    """

    updates: tuple[Update, ...]
    inputs: tuple[Any, ...]
    runner: Updates
    name: str
    traceback: Any
    type: str = "FusedUpdates"
    outputs: tuple[Any, ...] = ()

    @property
    def work(self) -> int:
        """How many floating-point operations it takes."""
        return sum(math.prod(one.shape) * one.loop.num_operations for one in self.updates)

    def get_attr(self, name: str) -> Any:
        """It has none."""
        raise ValueError(f"{self.type} has no attribute {name!r}")

    def decision(self) -> Decision:
        """How it runs on a rank: all inputs are whole."""

        def build(_builder: Any, _op: Any, inputs: list[Any]) -> list[Any]:
            self.runner.build(self.updates, inputs)
            return []

        return Decision(tuple(R for _ in self.inputs), (), build)


def fused(program: Program, runner: Updates) -> Program:
    """The program with the regions of each level as one operation; the program itself if there are none.

    Args:
        program: Of one worker.
        runner: Who runs the loops.
    """
    excluded: set[Ref] = set()
    while True:
        lines = Lines(program, excluded, runner.least_entries)
        if not lines.assignments:
            return program
        regions = _Regions(lines)
        if not (wrong := regions.read_too_late() | regions.too_large()):
            return regions.replaced(runner) or program
        excluded |= wrong


class _Regions:
    """The levels of lines, and the program that has a loop in the place of each region."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._nodes = lines.nodes
        self._assignments = set(lines.assignments)
        self._levels, self._outside = self._placed()
        self._alike = self._found_alike()
        levels = sorted({self._levels[number] for number in self._assignments})
        self._in_loops = {level: self._of_level(level) for level in levels}
        self._loops = {
            level: [_Written(self._lines, self._number, part) for part in self._parts(level)] for level in levels
        }
        self._stays = self._found_needed()

    def _placed(self) -> tuple[list[int], list[int]]:
        """For each node its level as a line, and the number of levels that it waits for outside.

        A copy outside of a line comes in the line's level, or in the next one: what depends on both has a level
        behind the copy.
        """
        inside, outside = [0] * len(self._nodes), [0] * len(self._nodes)
        for number, node in enumerate(self._nodes):
            as_line = {*(self._lines.computed_by(ref) for ref in node.inputs), *node.before} - {-1}
            alone = {*(self._lines.made_by(ref) for ref in node.inputs), *node.before} - {-1}
            waits = [inside[one] if one in self._lines.members else outside[one] for one in as_line]
            inside[number] = max(waits, default=0)
            waits = [inside[one] + 1 if one in self._assignments else outside[one] for one in alone]
            outside[number] = max(waits, default=0)
        return inside, outside

    def _of_level(self, level: int) -> set[int]:
        """The assignments of a level, and the lines of their loops."""
        members = {number for number in self._lines.members if self._levels[number] == level}
        # A loop is given floats only: a decision of an earlier level is made again, of copies outside.
        earlier = {one for one in self._lines.members if self._levels[one] < level and self._lines.decides(one)}
        return self._lines.behind(members & self._assignments, members | earlier)

    def _parts(self, level: int) -> list[list[int]]:
        """The lines of a level, apart where they share no value and no variable: each part is one loop."""
        parents: dict[Any, Any] = {}

        def root(one: Any) -> Any:
            while parents.setdefault(one, one) != one:
                parents[one] = one = parents[parents[one]]
            return one

        lines = self._in_loops[level]
        for number in lines:
            node = self._nodes[number]
            parents[root(number)] = root(node.inputs[0] if node.inputs[0] in self._lines.variables else number)
            for ref in node.inputs:
                if (maker := self._lines.computed_by(ref)) in lines:
                    parents[root(number)] = root(maker)
        parts: dict[Any, list[int]] = {}
        for number in sorted(lines):
            parts.setdefault(root(number), []).append(number)
        return list(parts.values())

    def _found_needed(self) -> set[int]:
        """The nodes that stay outside: effects, and what they, the outputs or the loops need."""
        stays: set[int] = set()
        stack = [
            number
            for number, node in enumerate(self._nodes)
            if has_effect(node.op) and node.op.type != READ and number not in self._assignments
        ]
        given = [ref for loops in self._loops.values() for loop in loops for ref in (*loop.numbers, *loop.vectors)]
        stack += [self._lines.made_by(ref) for ref in (*self._lines.program.outputs, *given)]
        while stack:
            number = stack.pop()
            if number == -1 or number in stays or number in self._assignments:
                continue
            stays.add(number)
            stack += [self._lines.made_by(ref) for ref in self._nodes[number].inputs]
            stack += [one for one in self._nodes[number].before if self._nodes[one].op.type != READ]
        return stays

    def read_too_late(self) -> set[Ref]:
        """The variables that would be assigned before a copy outside has read them."""
        return {
            self._nodes[number].inputs[0]
            for number in self._assignments
            for one in self._nodes[number].before
            if one in self._stays and self._outside[one] > self._levels[number]
        }

    def too_large(self) -> set[Ref]:
        """The variables of loops that take long to compile, and read too many arrays at once."""
        loops = [loop for of_level in self._loops.values() for loop in of_level]
        return {ref for loop in loops if len(loop.variables) > _MOST_VARIABLES for ref in loop.variables}

    # The new program

    def replaced(self, runner: Updates) -> Program | None:
        """With a node for each level; None if nodes would wait for each other."""
        kept = sorted(self._stays)
        places = {number: place for place, number in enumerate(kept)}
        of_level = {level: len(kept) + index for index, level in enumerate(self._loops)}

        def waited(numbers: Iterable[int], passed: Collection[int] = ()) -> set[int]:
            """The new numbers of these nodes; of one that has gone, or is passed, of those that it waited for."""
            found, seen, stack = set(), {-1}, list(numbers)
            while stack:
                if (number := stack.pop()) in seen:
                    continue
                seen.add(number)
                if number in self._assignments:
                    found.add(of_level[self._levels[number]])
                elif number in places and number not in passed:
                    found.add(places[number])
                else:
                    stack += [*self._nodes[number].before, *map(self._lines.made_by, self._nodes[number].inputs)]
            return found

        nodes = []
        for number in kept:
            node = self._nodes[number]
            nodes.append(Node(node.op, node.inputs, node.outputs, frozenset(waited(node.before))))
        for level, place in of_level.items():
            op, refs = self._operation(level, runner)
            lines = self._in_loops[level]
            # Only who assigns waits for copies outside, which read before.
            read = waited(one for number in lines & self._assignments for one in self._nodes[number].before)
            before = waited((one for number in lines for one in self._nodes[number].before), self._lines.members)
            earlier = {of_level[one] for one in of_level if one < level}  # also those that only read what this assigns
            nodes.append(Node(op, refs, (), frozenset((read | before | earlier) - {place})))
        return in_order(nodes, self._lines.program.inputs, self._lines.program.outputs)

    def _operation(self, level: int, runner: Updates) -> tuple[FusedUpdates, tuple[Ref, ...]]:
        """All loops of a level, and what they read."""
        places: dict[Ref, int] = {}
        tensors: list[Any] = []

        def placed(given: dict[Ref, Any]) -> tuple[int, ...]:
            for ref, tensor in given.items():
                if ref not in places:
                    places[ref] = len(places)
                    tensors.append(tensor)
            return tuple(places[ref] for ref in given)

        updates = tuple(
            Update(one.loop(), one.shape, placed(one.numbers), placed(one.vectors), placed(one.variables))
            for one in self._loops[level]
        )
        first = self._nodes[min(self._in_loops[level] & self._assignments)].op
        op = FusedUpdates(updates, tuple(tensors), runner, f"fused_updates_{level}", first.traceback)
        return op, tuple(places)

    def _number(self, ref: Ref) -> Ref:
        """The first number that is computed alike: optimizers compute the same ones again for each weight."""
        ref = self._lines.source(ref)
        return self._alike.get(ref, ref)

    def _found_alike(self) -> dict[Ref, Ref]:
        """For each number that follows from numbers, or is read: the first that is computed in the same way."""
        alike: dict[Ref, Ref] = {}
        first: dict[Any, Ref] = {}
        for node in self._nodes:
            if len(node.outputs) == 1 and node.op.outputs[0].shape.rank == 0 and (how := _how(node)) is not None:
                inputs = (alike.get(ref, ref) for ref in map(self._lines.source, node.inputs))
                alike[node.outputs[0]] = first.setdefault((how, *inputs), node.outputs[0])
        return alike


def _how(node: Node) -> Any:
    """What an operation computes of its inputs; None: something that is not always the same."""
    if node.op.type == READ:
        return READ, node.before
    if has_effect(node.op) or node.before:
        return None
    attributes = {name: value for name, value in node.op.node_def.attr.items() if not name.startswith("_")}
    if any(value.HasField("func") for value in attributes.values()):
        return None
    return node.op.type, tuple(sorted((name, value.SerializeToString()) for name, value in attributes.items()))


class _Written:
    """A loop, written down line by line: what is needed first gets the first number, so that like loops are equal."""

    def __init__(self, lines: Lines, number: Callable[[Ref], Ref], members: Sequence[int]) -> None:
        self._program = lines
        self._number = number
        self._lines: list[Line] = []
        self._places: dict[int, int] = {}
        self._given: dict[Ref, int] = {}
        self.numbers: dict[Ref, Any] = {}
        """The numbers that it is given, with their traced tensors; and likewise:"""
        self.vectors: dict[Ref, Any] = {}
        self.variables: dict[Ref, Any] = {}
        self._variables: dict[Ref, int] = {}
        self.shape: tuple[int, ...] = ()
        self._dtype = ""
        for member in members:
            self._places[member] = self._node(lines.nodes[member])

    def loop(self) -> Loop:
        """All lines."""
        are_decisions = tuple(tensor.dtype.name == "bool" for tensor in self.numbers.values())
        return Loop(self._dtype, are_decisions, len(self.vectors), tuple(self._lines))

    def _node(self, node: Node) -> int:
        if node.op.type == READ:
            return self._add("read", self._variable(node))
        if node.op.type not in ASSIGNMENTS:
            return self._add(node.op.type, *(self._arg(*one) for one in zip(node.inputs, node.op.inputs, strict=True)))
        self.shape, self._dtype = shape_of(node.op.inputs[1]) or (), node.op.inputs[1].dtype.name
        value = self._arg(node.inputs[1], node.op.inputs[1])
        variable = self._variable(node)
        if how := ASSIGNMENTS[node.op.type]:
            value = self._add(how, self._add("read", variable), value)
        return self._add("assign", variable, value)

    def _add(self, what: str, *args: int) -> int:
        self._lines.append(Line(what, args))
        return len(self._lines) - 1

    def _variable(self, node: Node) -> int:
        self.variables.setdefault(node.inputs[0], node.op.inputs[0])
        return self._variables.setdefault(node.inputs[0], len(self._variables))

    def _arg(self, ref: Ref, tensor: Any) -> int:
        if (line := self._places.get(self._program.computed_by(ref))) is not None:
            return line
        is_number = tensor.shape.rank == 0
        ref = self._number(ref) if is_number else self._program.source(ref)
        if ref not in self._given:
            among = self.numbers if is_number else self.vectors
            self._given[ref] = self._add("number" if is_number else "vector", len(among))
            among[ref] = tensor
        return self._given[ref]
