"""What a step does besides computing tensors: rank 0 does it, once and with whole tensors, as one worker does.

| operation | rank 0 | other ranks |
|---|---|---|
| prints, writes summaries or files | runs it | nothing |
| calls Python | runs it | get its outputs, or its exception |
| reads the clock | runs it | an addend of zero |

Variables, tables, seeds and iterators are state of the step, which each rank has: what changes or reads them runs on
all ranks. So does all else, on tensors that are the same everywhere.
"""

from collections.abc import Sequence
from typing import Any

from paceline.spmd.decisions import Decision, Operation
from paceline.spmd.placements import P, R, Spec, new_dims
from paceline.spmd.rules.rule import Rule, rules

_HANDLES = ("resource", "variant")

_ON_ALL_RANKS = (
    "Assert",  # fails alike on all ranks, so nobody waits for one that has failed
    # Of values that other operations of the step take out again, by a name and without a handle:
    *("Stage", "StageClear", "MapStage", "MapClear", "OrderedMapStage", "OrderedMapClear"),
)
"""What looks like an operation that only acts on the outside, and is none: nothing in its definition tells."""


_REPEATED = (
    *("ReadVariable", "Assign", "Resource", "VariableShape", "VarIsInitialized", "Rng", "Stateful"),  # of variables
    *("If", "Case", "While", "Assert", "TensorArray", "Empty", "DeepCopy", "CheckNumerics", "CudnnRNN"),
    *("LookupTableFind", "LookupTableSize", "StatelessRandomGetAlg", "DeviceIndex", "IsTensorFloat32Enabled"),
    *("XlaCallModule", "GuaranteeConst"),
)
"""How the types of operations begin that have an effect, in TensorFlow's words, but none that outlasts a step, or one
on variables only."""


def rule_of(op: Operation) -> Rule | None:
    """The rule of an operation that rank 0 runs for all, if it is one."""
    rule = _ANSWERED_BY_FIRST.get(op.type)
    return _done_by_first if rule is None and _only_acts_outside(op) else rule


def can_be_repeated(op: Any) -> bool:
    """Whether an operation may run once more than a script asks for, if variables are put back afterwards.

    What draws from a state in its kernel, with seeds, may: another call of its function has another kernel.
    """
    if op.op_def is None or not op.op_def.is_stateful:
        return True
    if has_seed(op) and not op.type.startswith("CudnnRNN"):  # which draws for its own dropout only
        return bool(op.get_attr("seed") or op.get_attr("seed2"))
    return bool(op.type.startswith(_REPEATED))


def has_seed(op: Any) -> bool:
    """Whether an operation draws from a state in its kernel."""
    return op.op_def is not None and any(attribute.name == "seed2" for attribute in op.op_def.attr)


def _only_acts_outside(op: Any) -> bool:
    """Whether TensorFlow's definition says that nothing in the step depends on what an operation does.

    It says that the operation does something, and the operation has no output. Of handles it has none but that of a
    writer of summaries: all others are of the step's own state.
    """
    definition = getattr(op, "op_def", None)
    if definition is None or not definition.is_stateful or op.outputs or op.type in _ON_ALL_RANKS:
        return False
    num_writers = sum(one.name == "writer" for one in definition.input_arg)
    return bool(num_writers == sum(tensor.dtype.name in _HANDLES for tensor in op.inputs))


def _done_by_first(op: Operation, specs: Sequence[Spec]) -> Decision:
    del op

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        if builder.messages.acts_outside:
            return list(builder.copied(op, inputs))
        builder.nothing()  # for what comes after it, and so after all that came before
        return []

    return Decision(tuple(R for _ in specs), (), build)


def _called_by_first(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """A call of Python; of handles, which only this process knows, one on each rank."""
    if any(tensor.dtype.name in _HANDLES for tensor in [*op.inputs, *op.outputs]):
        return None

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        made = builder.messages.called(op, inputs)[: len(op.outputs)]
        for output, like in zip(made, op.outputs, strict=True):
            output.set_shape(like.shape)  # which the script may have told, as nothing else does
        return list(made)

    outputs = (Spec(R, _dims(output, op.name)) for output in op.outputs)
    return Decision(tuple(R for _ in specs), tuple(outputs), build)


def _read_by_first(op: Operation, specs: Sequence[Spec]) -> Decision:
    """A number from the outside: what rank 0 reads, and zeros to add to it."""

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        return [builder.messages.addend(output) for output in builder.copied(op, inputs)]

    return Decision(tuple(R for _ in specs), tuple(Spec(P, _dims(output, op.name)) for output in op.outputs), build)


def _dims(output: Any, name: str) -> Any:
    return new_dims(None if output.shape.rank is None else output.shape.as_list(), name)


_ANSWERED_BY_FIRST: dict[str, Rule] = {
    **rules("PyFunc PyFuncStateless EagerPyFunc", _called_by_first),
    "Timestamp": _read_by_first,
}
"""Operations with outputs that depend on where they run, or how often."""
