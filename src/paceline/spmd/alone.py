"""The messages of a rank that is the only one: there are none."""

from collections.abc import Sequence
from typing import Any

from paceline.spmd import compat
from paceline.spmd.decisions import Operation
from paceline.spmd.messages import Messages


class Alone(Messages):
    """`Messages` of one rank: its addends are sums, and its rows are all rows."""

    acts_outside = True

    def addend(self, whole: Any) -> Any:
        """See `Messages.addend`."""
        return whole

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """See `Messages.sum`."""
        return list(addends)

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """See `Messages.gather`."""
        return [tensor for tensor, _ in parts]

    def called(self, op: Operation, inputs: Sequence[Any]) -> list[Any]:
        """See `Messages.called`: as TensorFlow calls it."""
        copy = compat.copied(op, list(inputs))
        return list(copy.outputs) or [copy]
