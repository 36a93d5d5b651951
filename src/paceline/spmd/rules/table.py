"""All rules, and the one way to ask them."""

from collections.abc import Sequence
from dataclasses import replace

from paceline.spmd import contents
from paceline.spmd.decisions import Decision, Operation
from paceline.spmd.placements import R, Spec, known_content, new_dims
from paceline.spmd.rules import effects, entrywise, lists, moves, own_rows, products, randoms, reductions, shapes
from paceline.spmd.rules.rule import REGISTERED, Rule

RULES: dict[str, Rule] = {
    **entrywise.TABLE,
    **products.TABLE,
    **reductions.TABLE,
    **moves.TABLE,
    **shapes.TABLE,
    **randoms.TABLE,
    **lists.TABLE,
}
"""Types of operations, and their rules. What is not here gets whole tensors; of effects see `effects.py`."""

_BESIDE = (effects.rule_of, own_rows.rule_of)
"""Rules of operations that their types alone do not tell."""


EXACT = frozenset(
    [
        *entrywise.EXACT,
        *(moves.TABLE.keys() - {"MirrorPadGrad", "ScatterNd", "UnsortedSegmentSum"}),  # which add
        *shapes.TABLE,
        *("ArgMax", "ArgMin", "DepthToSpace", "ResizeNearestNeighbor", "SpaceToDepth"),
        "DecodeRaw",  # has no rule: what it makes of no row does not say how long a row is
    ]
)
"""Types of operations that copy numbers, or round each by itself: the same bits, however many rows there are."""


def is_exact(op: Operation) -> bool:
    """Whether the numbers of some rows are bit for bit those of the same rows among others, where a rule keeps rows.

    So are whole numbers and text, which nothing rounds. A product of complex numbers has several roundings, which
    kernels may put together.
    """
    types = [each.dtype for each in (*op.inputs, *op.outputs)]
    if any(dtype.is_complex for dtype in types):
        return False
    return op.type in EXACT or not any(dtype.is_floating for dtype in types)


def decided(op: Operation, specs: Sequence[Spec]) -> Decision:
    """How `op` runs on a rank: as its rule says, else on whole tensors."""
    rule = (
        REGISTERED.get(op.type) or RULES.get(op.type) or next(filter(None, (rule_of(op) for rule_of in _BESIDE)), None)
    )
    decision = lists.of_lists(op, specs) if any(spec.element is not None for spec in specs) else None
    inputs = zip(op.inputs, specs, strict=True)
    from_elsewhere = any(like.dtype.name == "variant" and spec.element is None for like, spec in inputs)
    if decision is None and rule is not None and not from_elsewhere:  # a list of which nothing is known
        decision = rule(op, specs)
    if decision is None:
        decision = Decision(tuple(R for _ in specs), tuple(_static(op, index) for index in range(len(op.outputs))))
    if any(spec.placement == R and spec.content is None for spec in decision.outputs):
        found = contents.evaluated(op, [spec.content if spec.placement == R else None for spec in specs])
        outputs = tuple(
            replace(spec, content=known_content(content)) if spec.placement == R and spec.content is None else spec
            for spec, content in zip(decision.outputs, found, strict=True)
        )
        decision = Decision(decision.needs, outputs, decision.build, decision.also)
    return decision


def _static(op: Operation, index: int) -> Spec:
    output = op.outputs[index]
    if output.dtype.name == "variant" or output.shape.rank is None:
        return Spec(R)
    return Spec(R, new_dims(output.shape.as_list(), op.name))
