"""Which operations of a program can be lines of a loop (`loops.py`). Pure.

An assignment of a variable, and what it is computed of: reads of variables and operations of `loops.STEPS`, on tensors
of one shape that the trace knows, and on numbers.
"""

import math
from collections.abc import Collection, Iterable
from typing import Any

from paceline.spmd.loops import FLOATS, STEPS
from paceline.spmd.programs import Node, Program, Ref

ASSIGNMENTS = {"AssignVariableOp": "", "AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}
"""Operations that assign, and what they compute of the variable and the value."""

READ = "ReadVariableOp"

_SAME = ("Identity", "IdentityN", "StopGradient", "PreventGradient")
"""Operations whose outputs are their inputs."""


class Lines:
    """Which operations of a program can be lines of loops.

    Args:
        program: Of one worker.
        excluded: Handles of variables that stay outside.
        least_entries: Variables with fewer stay outside, too.
    """

    def __init__(self, program: Program, excluded: set[Ref], least_entries: int) -> None:
        self.program = program
        self.nodes = program.nodes
        self._makers = {ref: number for number, node in enumerate(self.nodes) for ref in node.outputs}
        self._sources: dict[Ref, Ref] = {}
        for node in self.nodes:
            if node.op.type in _SAME:
                for output, ref in zip(node.outputs, node.inputs, strict=True):
                    self._name(output, self.source(ref), node)
        handles = self._handles(least_entries) - excluded
        lines = self._possible(handles)
        self.variables = self._worth_it(handles, lines)
        """Handles of the variables that loops read and assign."""
        self.assignments = [number for number, node in enumerate(self.nodes) if self._assigns(node, self.variables)]
        self.members = self.behind(self.assignments, self._possible(self.variables))
        """The assignments, and the lines that they are computed of."""

    def _name(self, output: Ref, source: Ref, node: Node) -> None:
        """`output` is `source` by another name, unless whoever reads it waits for more: for a function's effects."""
        maker = self._makers.get(source, -1)
        known = self.nodes[maker].before | {maker} if maker != -1 else frozenset[int]()
        if node.before <= known and node.op.inputs[0].dtype.name != "resource":
            self._sources[output] = source

    def source(self, ref: Ref) -> Ref:
        """What a tensor is that has only another name."""
        return self._sources.get(ref, ref)

    def computed_by(self, ref: Ref) -> int:
        """The number of the node that computes a tensor, whatever names it has got since; -1: an input."""
        return self._makers.get(self.source(ref), -1)

    def made_by(self, ref: Ref) -> int:
        """The number of the node whose output a tensor is, also where the node only names it; -1: an input."""
        return self._makers.get(ref, -1)

    def _handles(self, least_entries: int) -> set[Ref]:
        """Of variables of floats that are assigned, in one shape; no other operation than reads takes them."""
        shapes: dict[Ref, tuple[int, ...]] = {}
        others: set[Ref] = set()
        for node in self.nodes:
            shape = shape_of(node.op.inputs[1]) if node.op.type in ASSIGNMENTS else None
            if shape is not None and math.prod(shape) >= least_entries:
                if shapes.setdefault(node.inputs[0], shape) != shape:
                    others.add(node.inputs[0])  # of a variable whose shape is open
            elif node.op.type not in (READ, "VariableShape"):
                others.update(node.inputs)
        # What a program makes of a handle would be another name for the same variable.
        made = {ref for ref in shapes if (maker := self._makers.get(ref, -1)) != -1 and not self._is_new(maker)}
        return shapes.keys() - others - made

    def _is_new(self, maker: int) -> bool:
        return bool(self.nodes[maker].op.type == "VarHandleOp")

    def _possible(self, handles: set[Ref]) -> set[int]:
        """The nodes that can be lines."""
        lines: set[int] = set()
        of_variables: set[int] = set()
        for number, node in enumerate(self.nodes):
            if node.op.type == READ:
                if node.inputs[0] in handles and shape_of(node.op.outputs[0]) is not None:
                    lines.add(number)
                    of_variables.add(number)
            elif self._is_line(node, lines):
                makers = [
                    self.computed_by(ref)
                    for ref, given in zip(node.inputs, node.op.inputs, strict=True)
                    if given.shape.rank
                ]
                # A sum of gradients stays outside: each of them would travel between ranks, and not the sum.
                if not of_variables.isdisjoint(makers):
                    of_variables.add(number)
                elif len(makers) > 1:
                    continue
                lines.add(number)
        return lines

    def _is_line(self, node: Node, lines: set[int]) -> bool:
        step = STEPS.get(node.op.type)
        if step is None:
            return False
        entry = node.op.inputs[-1].dtype
        shape = shape_of(node.op.outputs[0], is_decision=step.is_decision)
        if shape is None or entry.name not in FLOATS:
            return False
        for index, (ref, tensor) in enumerate(zip(node.inputs, node.op.inputs, strict=True)):
            is_decision = index in step.takes_decisions
            if tensor.dtype.name != ("bool" if is_decision else entry.name):
                return False
            if tensor.shape.rank != 0 and shape_of(tensor, is_decision=is_decision) != shape:
                return False
            if tensor.shape.rank != 0 and is_decision and not self._decides(ref, entry, lines):
                return False
        return True

    def _decides(self, ref: Ref, entry: Any, lines: set[int]) -> bool:
        """Whether decisions are made within a loop, and from entries of its type."""
        maker = self.computed_by(ref)
        return maker in lines and self.nodes[maker].op.inputs[-1].dtype == entry

    def decides(self, number: int) -> bool:
        """Whether a node's output is true or false for each entry."""
        step = STEPS.get(self.nodes[number].op.type)
        return step is not None and step.is_decision

    def _worth_it(self, handles: set[Ref], lines: set[int]) -> set[Ref]:
        """Those of which some assigned value is a line: a plain copy, or sum, is one pass anyway."""
        return {
            node.inputs[0]
            for node in self.nodes
            if self._assigns(node, handles) and self.computed_by(node.inputs[1]) in lines
        }

    @staticmethod
    def _assigns(node: Node, handles: set[Ref]) -> bool:
        return node.op.type in ASSIGNMENTS and node.inputs[0] in handles

    def behind(self, assignments: Iterable[int], lines: Collection[int]) -> set[int]:
        """Assignments, and those of the lines that they are computed of."""
        members = set(assignments)
        stack = list(members)
        while stack:
            for ref in self.nodes[stack.pop()].inputs:
                maker = self.computed_by(ref)
                if maker in lines and maker not in members:
                    members.add(maker)
                    stack.append(maker)
        return members


def shape_of(tensor: Any, *, is_decision: bool = False) -> tuple[int, ...] | None:
    """The shape of a tensor that can be the entries of a loop: all known, and of floats; None: of any other."""
    if not tensor.shape.rank or not tensor.shape.is_fully_defined():
        return None
    if tensor.dtype.name not in ({"bool"} if is_decision else FLOATS):
        return None
    return tuple(tensor.shape.as_list())
