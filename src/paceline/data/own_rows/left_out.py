"""Stages that change nothing, which TensorFlow leaves out."""

from typing import Any

from paceline.data import compat


def is_left_out(dataset: Any) -> bool:
    """Whether TensorFlow leaves a stage out, as it changes nothing, before it makes one stage of two others."""
    kind = compat.kind_of(dataset)
    if kind in ("Take", "Skip", "Repeat"):
        count = int(compat.count_of(dataset))
        return count < 0 if kind == "Take" else count == (0 if kind == "Skip" else 1)
    return kind in ("Map", "ParallelMap") and _returns_its_rows(compat.traced_function_of(dataset))


def _returns_its_rows(function: Any) -> bool:
    if function is None or function.captured_inputs or len(function.inputs) != len(function.outputs):
        return False
    for given, returned in zip(function.inputs, function.outputs, strict=True):
        if behind_identities(returned) is not given:
            return False
    return not any(compat.has_state(one.type) for one in function.graph.get_operations())


def behind_identities(tensor: Any) -> Any:
    """What `tensor` of a traced function is, without operations that return what they are given."""
    while tensor.op.type == "Identity":
        [tensor] = tensor.op.inputs
    return tensor
