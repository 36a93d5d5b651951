"""Whether a function of whole batches makes a row for each row: what a traced graph says of that; pure.

Only operations that round each number by itself are known here. Others (`exp`, `tanh`, a product of matrices) may work
on several numbers at once, with a last bit that depends on how many rows there are.

    kind of tensor     meaning
    rows               its first axis is the rows, and a row of it depends on that row of the batch only
    constant           the same for every batch
    None               neither, or not known: the map stays on whole batches
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.marked_functions import is_element_wise

# fmt: off
_UNARY = (
    "Abs", "AsString", "Cast", "Ceil", "CheckNumerics", "Floor", "Identity", "Invert", "LogicalNot", "Neg",
    "OnesLike", "Relu", "Relu6", "Rint", "Round", "Sign", "Sqrt", "Square", "StopGradient", "StringLower",
    "StringToHashBucketFast", "StringToNumber", "StringUpper", "ZerosLike",
)
_BINARY = (
    "Add", "AddV2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "FloorDiv", "FloorMod", "Greater",
    "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual", "RealDiv",
    "SquaredDifference", "Sub",
)
# fmt: on
ROUNDS_EACH_NUMBER_ALONE = frozenset(_UNARY + _BINARY)
"""Types of operations whose numbers do not depend on how many are worked on together."""


@dataclass(frozen=True, slots=True)
class _Kind:
    has_rows: bool
    rank: int
    first: int | None
    """Size of a constant's first axis; None: not known, or rows."""


def is_row_wise(dataset: Any) -> bool:
    """Whether a map's function, given some rows of a batch, returns these rows of what it returns for the batch.

    Args:
        dataset: A map stage, whose elements are dense batches of an unknown number of rows.
    """
    [source] = compat.inputs_of(dataset)
    leaves = tf.nest.flatten(source.element_spec)
    if not all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank and leaf.shape[0] is None for leaf in leaves):
        return False
    function = compat.traced_function_of(dataset)
    if function is None or compat.options_of_map(dataset).get("deterministic") is False:
        return False
    if is_element_wise(compat.given_function_of(dataset)):
        return True
    has_rows = [number < len(leaves) for number in range(len(function.inputs))]
    kinds: dict[str, _Kind | None] = {}
    for tensor, of_rows in zip(function.inputs, has_rows, strict=True):
        kinds[tensor.name] = None if tensor.dtype in (tf.resource, tf.variant) else _kind(tensor, of_rows)
    for operation in function.graph.get_operations():
        if operation.type == "Placeholder":
            continue
        if operation.type not in ("NoOp", "Const") and operation.type not in _RULES:
            return False
        known = _of_operation(operation, [kinds.get(tensor.name) for tensor in operation.inputs])
        for tensor in operation.outputs:
            kinds[tensor.name] = known
    results = [kinds.get(tensor.name) for tensor in function.outputs]
    return bool(results) and all(kind is not None and kind.has_rows for kind in results)


def _kind(tensor: Any, has_rows: bool) -> _Kind | None:
    rank = tensor.shape.rank
    if rank is None or (has_rows and rank == 0):
        return None
    return _Kind(has_rows, rank, tensor.shape[0] if rank and not has_rows else None)


def _of_operation(operation: Any, inputs: list[_Kind | None]) -> _Kind | None:
    if operation.type == "NoOp":
        return None
    if operation.type == "Const" or all(kind is not None and not kind.has_rows for kind in inputs):
        return _kind(operation.outputs[0], has_rows=False)
    if any(kind is None for kind in inputs):
        return None
    known = [kind for kind in inputs if kind is not None]
    return _kind(operation.outputs[0], has_rows=True) if _RULES[operation.type](operation, known) else None


def _is_binary(_: Any, inputs: list[_Kind]) -> bool:
    one, other = inputs
    if one.has_rows and other.has_rows:
        return one.rank == other.rank
    rows, constant = (one, other) if one.has_rows else (other, one)
    return constant.rank < rows.rank or (constant.rank == rows.rank and constant.first == 1)


def _constant(tensor: Any) -> Any:
    return tf.get_static_value(tensor)


def _is_behind_rows(axis: Any, rank: int) -> bool:
    """Whether an axis (None: not known) of a tensor of this rank is another than the first."""
    return axis is not None and math.prod(getattr(axis, "shape", ())) == 1 and int(axis) % rank != 0


def _is_gather(operation: Any, inputs: list[_Kind]) -> bool:
    params, indices, _ = inputs
    axis = _constant(operation.inputs[2])
    is_of_rows = axis is not None and int(axis) == 0 and operation.get_attr("batch_dims") == 0
    return is_of_rows and not params.has_rows and indices.has_rows


def _is_one_hot(operation: Any, inputs: list[_Kind]) -> bool:
    return not any(kind.has_rows for kind in inputs[1:]) and operation.get_attr("axis") != 0


def _is_expand_dims(operation: Any, inputs: list[_Kind]) -> bool:
    return inputs[0].has_rows and _is_behind_rows(_constant(operation.inputs[1]), inputs[0].rank + 1)


def _is_squeeze(operation: Any, inputs: list[_Kind]) -> bool:
    axes = operation.get_attr("squeeze_dims")
    return bool(axes) and all(_is_behind_rows(axis, inputs[0].rank) for axis in axes)


def _is_arg_max(operation: Any, inputs: list[_Kind]) -> bool:
    return inputs[0].has_rows and _is_behind_rows(_constant(operation.inputs[1]), inputs[0].rank)


def _is_reshape(operation: Any, inputs: list[_Kind]) -> bool:
    shape, given = _constant(operation.inputs[1]), operation.inputs[0].shape[1:]
    if shape is None or not inputs[0].has_rows or not given.is_fully_defined():
        return False
    return len(shape) > 0 and shape[0] == -1 and math.prod(shape[1:]) == given.num_elements() > 0


def _is_resize(_: Any, inputs: list[_Kind]) -> bool:
    return inputs[0].has_rows and not inputs[1].has_rows


_RULES: dict[str, Callable[[Any, list[_Kind]], bool]] = {
    **dict.fromkeys(_UNARY, lambda _, inputs: len(inputs) == 1),
    **dict.fromkeys(_BINARY, _is_binary),
    "GatherV2": _is_gather,
    "OneHot": _is_one_hot,
    "ExpandDims": _is_expand_dims,
    "Squeeze": _is_squeeze,
    "ArgMax": _is_arg_max,
    "Reshape": _is_reshape,
    "ResizeNearestNeighbor": _is_resize,
}
