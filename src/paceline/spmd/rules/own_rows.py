"""The rule of a sum over the rows of each rank (`spmd/own_rows.py`): rows to rows, without a message.

It is not among the rules of TensorFlow's operations, of which each is proved to compute what one worker computes: this
one is there to compute something else.
"""

from collections.abc import Sequence
from typing import Any

from paceline.spmd import compat
from paceline.spmd.decisions import Decision, Operation
from paceline.spmd.own_rows import NAME, summed
from paceline.spmd.placements import Sharded, Spec
from paceline.spmd.rules.rule import Rule
from paceline.spmd.sizes import ROWS, Size, counts_rows


def rule_of(op: Operation) -> Rule | None:
    """The rule of a call that sums over own rows; None of any other operation."""
    return _on_own_rows if compat.implemented_by(op) == NAME else None


def _on_own_rows(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Own rows are what this rank has, or cuts out of what is whole.

    Where the first dimension is not the rows, all of it is summed, as one worker does.
    """
    del op
    (spec,) = specs
    shard = spec.shard
    if shard is None or shard.dim != 0:
        if not spec.dims or not counts_rows(spec.dims[0]):
            return None
        block = spec.dims[0].over(Size.of(ROWS))
        if not block.known:
            return None
        shard = Sharded(0, block)
    return Decision((shard,), (Spec(shard, spec.dims),), _built)


def _built(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
    del builder, op
    return [summed(inputs[0])]
