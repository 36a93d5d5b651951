"""What the divided step of one batch sends and computes: the numbers of an account (`account.py`). Pure values."""

from dataclasses import dataclass
from typing import Literal

from paceline.spmd.decisions import Operation

Kind = Literal["sum", "gather", "call"]
"""Addends of all ranks, rows of all ranks, or what Python has returned on the chief."""


@dataclass(frozen=True)
class SentCosts:
    """What one tensor costs in the step of one batch.

    Args:
        operations: The traced operations that need it.
        kind: "sum" or "gather", or "call".
        num_bytes: Of the whole tensor.
        share: Which part of the step's work follows from it and is computed by every rank, 0 to 1.
        has_rows: Whether it is as long as the batch, or longer.
    """

    operations: tuple[Operation, ...]
    kind: Kind
    num_bytes: int
    share: float
    has_rows: bool


@dataclass(frozen=True)
class Costs:
    """What the divided step of one batch sends and computes.

    Args:
        num_messages: Outside of loops; each is waited for.
        num_messages_in_loops: In each turn of a loop.
        sent: The tensors of all messages.
        work: Floating-point operations of the whole step on one worker, estimated.
        whole_share: Which part of them every rank computes because it has to do with the rows of all, 0 to 1.
        replicated_share: Which part of them every rank computes for any reason: the update of weights, too.
    """

    num_messages: int
    num_messages_in_loops: int
    sent: tuple[SentCosts, ...]
    work: int
    whole_share: float
    replicated_share: float

    def num_bytes(self, kind: Kind) -> int:
        """The bytes of all tensors that are summed, or gathered, in a step."""
        return sum(one.num_bytes for one in self.sent if one.kind == kind)
