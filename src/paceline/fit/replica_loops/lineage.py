"""Finds out from the graph of a step what a tensor was computed from.

Each tensor is looked at once: losses that are added up one by one would otherwise be walked again at every sum.
"""

import enum
from typing import Any

import tensorflow as tf

from paceline.strategy.replica_context import StepRows

_MARKS = "_paceline_marks"
"""On a tensor, which may be of an earlier step: a loss that one step returns may be handed to the next one."""

DATA = frozenset({"IteratorGetNext", "Placeholder"})
_WITH_GRAPHS_INSIDE = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})
_ELEMENTWISE = frozenset({"Mul", "RealDiv", "Div", "DivNoNan", "MulNoNan", "Cast", "Identity", "Neg", "AddV2", "Sub"})


class Mark(enum.Flag):
    """What is known of a tensor from whoever has computed it."""

    NOTHING = 0
    SHARE = enum.auto()
    """This rank's share of a global number."""
    OWN = enum.auto()
    """A number of this rank's rows, or of none, whatever it was computed from: nobody looks behind it."""
    OF_ROWS = enum.auto()
    """What a layer gives for each row, although it has looked at all of them (BatchNormalization)."""


def mark(tensor: Any, as_what: Mark) -> None:
    """Remembers it of `tensor`."""
    setattr(tensor, _MARKS, getattr(tensor, _MARKS, Mark.NOTHING) | as_what)


def is_marked(tensor: Any, as_what: Mark) -> bool:
    """Whether `tensor` has been marked so."""
    return as_what in getattr(tensor, _MARKS, Mark.NOTHING)


class From(enum.Flag):
    """What is found behind a tensor, or is the tensor itself."""

    NOTHING = 0
    SHARE = enum.auto()
    SUM_OVER_ROWS = enum.auto()
    LOOP_OR_BRANCH = enum.auto()
    DATA = enum.auto()
    REDUCED_FIRST_AXIS = enum.auto()


class Lineage:
    """Of the tensors of one step.

    Args:
        rows: Of the step.
    """

    def __init__(self, rows: StepRows) -> None:
        self._rows = rows
        self._found: dict[int, tuple[Any, From]] = {}
        """By identity; the tensor is kept, so that no other gets its number."""

    def of(self, tensor: Any) -> From:
        """What is behind `tensor`, a symbolic one."""
        left = [tensor]
        while left:
            current = left[-1]
            sources = () if is_marked(current, Mark.OWN) else inputs_of(current)
            missing = [one for one in sources if id(one) not in self._found]
            if missing and id(current) not in self._found:
                left += missing
                continue
            left.pop()
            if id(current) not in self._found:
                self._found[id(current)] = (current, self._look_at(current))
        return self._found[id(tensor)][1]

    def is_sum_over_rows(self, tensor: Any) -> bool:
        """Whether `tensor` is one number that adds up something of each of this rank's rows, and averages nothing.

        Only where the number of rows is not known when the step is built: else a sum that is divided by a number may be
        a mean or a sum, and nothing tells which.
        """
        if tensor.op.type not in ("Sum", "L2Loss") or tensor.shape.rank != 0 or not self._rows.known:
            return False
        added = tensor.op.inputs[0]
        if tf.get_static_value(self._rows.local) is not None or not added.shape.rank or added.shape[0] is not None:
            return False
        behind = self.of(added)
        return From.DATA in behind and From.REDUCED_FIRST_AXIS not in behind and not _is_scaled_by_a_scalar(added)

    def _look_at(self, tensor: Any) -> From:
        found = From.NOTHING
        if is_marked(tensor, Mark.OWN):
            return found
        for source in inputs_of(tensor):
            found |= self._found[id(source)][1]
        kind = tensor.op.type
        if is_marked(tensor, Mark.SHARE):
            found |= From.SHARE
        elif kind in DATA and tensor.dtype not in (tf.resource, tf.variant) and not _captured(tensor):
            found |= From.DATA
        elif kind in _WITH_GRAPHS_INSIDE:
            found |= From.LOOP_OR_BRANCH
        elif kind in ("Mean", "Sum") and tensor.shape.rank != 0 and From.DATA in found and _reduces_rows(tensor):
            found |= From.REDUCED_FIRST_AXIS
        elif self.is_sum_over_rows(tensor):
            found |= From.SUM_OVER_ROWS
        return found & ~From.REDUCED_FIRST_AXIS if is_marked(tensor, Mark.OF_ROWS) else found


def inputs_of(tensor: Any) -> list[Any]:
    """What `tensor` is computed from directly, also outside of its graph."""
    return [*tensor.op.inputs, *(outer for outer in _captured(tensor) if tf.is_symbolic_tensor(outer))]


def _captured(tensor: Any) -> list[Any]:
    """The tensor outside of its graph (a branch, a loop) that `tensor` stands for, if it does."""
    if tensor.op.type != "Placeholder" or tensor.dtype == tf.resource:
        return []
    return [outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor]


def lineage_of(rows: StepRows) -> Lineage:
    """That of a step, kept with it."""
    rows.lineage = rows.lineage or Lineage(rows)
    lineage: Lineage = rows.lineage
    return lineage


def is_constant(tensor: Any) -> bool:
    """Whether `tensor` is the same on all ranks whatever their rows: a number, or a variable."""
    while tensor.op.type in ("Identity", "Cast"):
        tensor = tensor.op.inputs[0]
    return bool(tensor.op.type in ("Const", "ReadVariableOp"))


def _reduces_rows(tensor: Any) -> bool:
    """Whether `tensor` is a reduction of a first axis that may be that of the rows, whose number is not known."""
    axes = tf.get_static_value(tensor.op.inputs[1])
    shape = tensor.op.inputs[0].shape
    if axes is None or shape.rank is None:
        return True
    return shape.rank > 0 and shape[0] is None and any(axis % shape.rank == 0 for axis in axes.reshape(-1).tolist())


def _is_scaled_by_a_scalar(tensor: Any) -> bool:
    """Whether `tensor` has been multiplied or divided by a number that is no constant: by that of the rows, perhaps."""
    left, seen = [tensor], {}
    while left:
        current = left.pop()
        operation = current.op
        if operation.type not in _ELEMENTWISE or id(current) in seen:
            continue
        seen[id(current)] = current
        for part in operation.inputs:
            if part.shape.rank != 0:
                left.append(part)
            elif operation.type not in ("AddV2", "Sub") and not is_constant(part):
                return True
    return False
