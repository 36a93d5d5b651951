"""Sums that follow from other sums, and so need no message of their own.

An operation that is linear in an addend is done on each rank's addend: nobody has to wait. Where the addend itself is
summed as well, its sum gives the other one, too. Adam needs a gradient for the square, and `(gradient - mean) * 0.1`:

    g (addends) ─► Sub ─► Mul ─► added to the mean          both would be sent
         └───────► Square ─► added to the velocity          g is sent; Sub and Mul are done again, on its sum
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.spmd.building import Builder, Value
from paceline.spmd.decisions import Decision
from paceline.spmd.placements import Partial, R
from paceline.spmd.programs import Node
from paceline.spmd.rules.table import decided


@dataclass(frozen=True, eq=False)
class _Made:
    """How an addend was made: all outputs of a node, from addends and what is whole."""

    node: Node
    addends: tuple[Value, ...]
    inputs: Sequence[Value]
    outputs: Sequence[Value]


class DerivedSums:
    """Knows how addends were made of others, in one program."""

    def __init__(self) -> None:
        self._made: dict[Value, _Made] = {}

    def note(self, node: Node, plan: Any, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """A node has been built."""
        if not isinstance(plan, Decision):
            return
        addends = tuple(
            value
            for value, need in zip(inputs, plan.needs, strict=True)
            if isinstance(need, Partial) and not _whole(value)
        )
        if addends and all(isinstance(spec.placement, Partial) for spec in plan.outputs):
            made = _Made(node, addends, inputs, outputs)
            self._made.update(dict.fromkeys(outputs, made))

    def among(self, values: Iterable[Value]) -> list[Value]:
        """Those of the values whose sums follow from the sums of others of them."""
        values = list(values)
        known: dict[Value, bool] = {}
        return [value for value in values if self._made.get(value) and self._from(value, set(values), known)]

    def _from(self, value: Value, sent: set[Value], known: dict[Value, bool]) -> bool:
        """Whether all addends that a value was made of are whole, sent, or made of such ones."""
        if value not in known:
            made = self._made.get(value)
            known[value] = made is not None and all(
                _whole(one) or one in sent or self._from(one, sent, known) for one in made.addends
            )
        return known[value]

    def build(self, builder: Builder, values: Iterable[Value]) -> None:
        """Makes values whole that follow from what is whole by now. No messages."""
        for value in values:
            self._build(builder, value)

    def _build(self, builder: Builder, value: Value) -> None:
        if _whole(value):
            return
        made = self._made[value]
        self.build(builder, made.addends)
        plan = decided(made.node.op, [one.spec for one in made.inputs])
        for output, again in zip(made.outputs, builder.run(made.node.op, plan, list(made.inputs)), strict=True):
            output.ways[R] = again.ways[R]
            output.spec = output.spec.placed(R)


def _whole(value: Value) -> bool:
    return R in value.ways
