"""Functions of a batch that make a row for each row: those that a rank can call for its own rows only.

    traced graph ─► partition.py, planning.py: what becomes of each operation     (pure)
                         │  no rows of other ranks, no effects, no random numbers, and the same bits for fewer rows?
                         ▼
                    traced for any number of rows: it is called as it is, if nothing depends on where own rows are
                    traced for one number of rows: partition.py builds the graph of own rows

Unlike those of a step, which may differ from one worker's by rounding, the rows of data are compared over ranks bit by
bit, and stay the same with another number of workers. TensorFlow rewrites the graphs of input pipelines, among them
products of constants, by what it knows of sizes: so a rank's graph knows as much of sizes as that of one worker.
"""

from collections.abc import Sequence
from typing import Any

from paceline.spmd.decisions import Decision, Rebuilt
from paceline.spmd.dividing import rows_are
from paceline.spmd.messages import Alone
from paceline.spmd.partition import Partitioner
from paceline.spmd.placements import Partial, R, Sharded
from paceline.spmd.planning import Planned
from paceline.spmd.programs import has_effect
from paceline.spmd.rules import effects, randoms
from paceline.spmd.rules.lists import can_be
from paceline.spmd.rules.table import RULES, is_exact

_ONLY_CHECK = ("Assert", "CheckNumerics")
"""Have an effect for TensorFlow, which is that they fail."""


def is_row_by_row(traced: Any, rows: Sequence[bool], num_rows: int | None = None) -> bool:
    """Whether it is proved that own rows of all outputs of a function follow from own rows of its inputs, bit by bit.

    If it has been traced for any number of rows, own rows of its outputs are what it returns for own rows.

    Args:
        traced: A concrete function, traced for a whole batch.
        rows: For each of its flat inputs, whether its first dimension is the rows of the batch.
        num_rows: How many rows the batches have for which it was traced, at least 2; None: any number.
    """
    partitioner = Partitioner(_NoMessages())
    outline = partitioner.outline(traced, rows, num_rows)
    with rows_are(num_rows):
        are_rows = bool(outline.outputs) and all(can_be(output, _ROWS) for output in outline.outputs)
        if not are_rows or not all(_takes_own_rows(planned) for planned in outline.operations):
            return False
    if num_rows is not None:
        return True
    # What depends neither on the number of all rows nor on the first own row is the same if there are no other rows.
    return not _reads_place(partitioner.divided(traced, rows, outputs=_ROWS).get_concrete_function())


def of_own_rows(traced: Any, rows: Sequence[bool], num_rows: int, own: range, given: Sequence[Any]) -> list[Any]:
    """Own rows of the outputs of a row-by-row function, in the current graph; see `Partitioner.built`."""
    return Partitioner(_NoMessages()).built(traced, rows, num_rows, own, given)


_ROWS = Sharded(0)


def _takes_own_rows(planned: Planned) -> bool:
    op, plan = planned.op, planned.plan
    has_state = any(tensor.dtype.name in ("resource", "variant") for tensor in op.inputs)
    if has_state or (has_effect(op) and op.type not in _ONLY_CHECK):
        return False
    if op.type in randoms.TABLE or effects.rule_of(op) is not None:
        return False
    if all(spec.placement == R for spec in (*planned.inputs, *plan.outputs)):
        return True
    if not isinstance(plan, Decision) or any(isinstance(spec.placement, Partial) for spec in plan.outputs):
        return False  # of loops and branches, nobody has asked what is inside
    needs = zip(planned.inputs, plan.needs, strict=True)
    has_all = all(spec.placement in (R, need) or isinstance(need, Rebuilt) for spec, need in needs)
    fails_without_rows = getattr(RULES.get(op.type), "without_rows", None) is not None
    return has_all and not fails_without_rows and is_exact(op)


def _reads_place(function: Any) -> bool:
    """Whether something in a graph depends on where the own rows are in the batch: on its first two inputs."""
    place = {tensor.op for tensor in function.inputs[:2]}
    stack = [tensor.op for tensor in function.outputs]
    stack += [op for op in function.graph.get_operations() if has_effect(op)]
    seen: set[Any] = set()
    while stack:
        op = stack.pop()
        if op not in seen:
            seen.add(op)
            stack += [tensor.op for tensor in op.inputs]
    return bool(place & seen)


class _NoMessages(Alone):
    """Nobody is asked: each rank has all that it needs."""

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """See `messages.Messages`."""
        raise AssertionError(addends)

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """See `messages.Messages`."""
        raise AssertionError(parts)

    def called(self, op: Any, inputs: Sequence[Any]) -> list[Any]:
        """See `messages.Messages`."""
        raise AssertionError(op, inputs)
