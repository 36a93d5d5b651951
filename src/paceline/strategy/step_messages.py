"""What a divided step (`spmd/`) sends, over a strategy's collectives."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.spmd.decisions import Operation
from paceline.spmd.messages import Messages
from paceline.strategy.calls_on_chief import CallOnChief
from paceline.strategy.graph_collectives import GraphCollectives


class StepMessages(Messages):
    """Messages over the collectives of one rank.

    Args:
        rank: This rank.
        collectives: In graphs, in one order on all ranks.
    """

    def __init__(self, rank: int, collectives: GraphCollectives) -> None:
        self._rank = rank
        self._collectives = collectives

    @property
    def acts_outside(self) -> bool:
        """See `Messages.acts_outside`."""
        return self._rank == 0

    def addend(self, whole: Any) -> Any:
        """See `Messages.addend`."""
        return whole if self._rank == 0 else tf.zeros_like(whole)

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """See `Messages.sum`."""
        return self._collectives.all_reduce(addends)

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """See `Messages.gather`; one message for each tensor."""
        return [_with_first(dim, self._collectives.all_gather, tensor) for tensor, dim in parts]

    def called(self, op: Operation, inputs: Sequence[Any]) -> list[Any]:
        """See `Messages.called`."""
        token = op.get_attr("token").decode()
        call = CallOnChief(op.type, token, [output.dtype for output in op.outputs])
        return call.in_graph(self._rank, self._collectives, inputs)


def _with_first(dim: int, function: Any, tensor: Any) -> Any:
    """What `function` makes of a tensor of which `dim` is first; `dim` is where it was again."""
    if dim == 0:
        return function(tensor)
    order = [dim, *(axis for axis in range(tensor.shape.rank) if axis != dim)]
    back = [order.index(axis) for axis in range(tensor.shape.rank)]
    return tf.transpose(function(tf.transpose(tensor, order)), back)
