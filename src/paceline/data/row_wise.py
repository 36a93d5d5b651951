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
_BROADCAST = (
    "Add", "AddV2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "FloorDiv", "FloorMod", "Greater",
    "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual", "RealDiv",
    "SelectV2", "SquaredDifference", "Sub",
)
# fmt: on
ROUNDS_EACH_NUMBER_ALONE = frozenset(_UNARY + _BROADCAST)
"""Types of operations whose numbers do not depend on how many are worked on together."""


@dataclass(frozen=True, slots=True)
class _Kind:
    has_rows: bool
    rank: int
    first: int | None
    """Size of a constant's first axis; None: not known, or rows."""


def is_row_wise(dataset: Any) -> bool:
    """Whether a map's function, given some rows of a batch, returns these rows of what it returns for the batch.

    Where its number of rows is part of what has been traced (`drop_remainder`), it has to be traced no more, but put
    together again for any number (`for_any_rows`).

    Args:
        dataset: A map stage, whose elements are dense batches.
    """
    [source] = compat.inputs_of(dataset)
    leaves = tf.nest.flatten(source.element_spec)
    if not all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank for leaf in leaves):
        return False
    function = compat.traced_function_of(dataset)
    if function is None:
        return False
    if is_element_wise(compat.given_function_of(dataset)):
        return not has_fixed_rows(dataset)
    has_rows = [number < len(leaves) for number in range(len(function.inputs))]
    kinds: dict[str, _Kind | None] = {}
    for tensor, of_rows in zip(function.inputs, has_rows, strict=True):
        kinds[tensor.name] = None if tensor.dtype in (tf.resource, tf.variant) else _kind(tensor, of_rows)
    for operation in function.graph.get_operations():
        if operation.type == "Placeholder":
            continue
        if operation.type not in ("NoOp", "Const") and operation.type not in _RULES:
            return False
        inputs = [kinds.get(tensor.name) for tensor in operation.inputs]
        for tensor in operation.outputs:
            kinds[tensor.name] = _of_output(operation, inputs, tensor)
    results = [kinds.get(tensor.name) for tensor in function.outputs]
    return bool(results) and all(kind is not None and kind.has_rows for kind in results)


def has_fixed_rows(dataset: Any) -> bool:
    """Whether the number of rows is part of what has been traced of a map behind a batch."""
    [source] = compat.inputs_of(dataset)
    return any(leaf.shape[0] is not None for leaf in tf.nest.flatten(source.element_spec))


def for_any_rows(dataset: Any, flat: list[Any]) -> list[Any]:
    """What the function of a map makes of the tensors of a batch of any number of rows; in a graph.

    Args:
        dataset: A map stage that is row-wise without being marked.
        flat: The tensors of the batch.
    """
    function = compat.traced_function_of(dataset)
    captured = [tf.identity(tensor) for tensor in function.captured_inputs]
    given = zip(function.inputs, [*flat, *captured], strict=True)
    made: list[Any] = tf.graph_util.import_graph_def(
        function.graph.as_graph_def(),
        input_map={tensor.name: value for tensor, value in given},
        return_elements=[tensor.name for tensor in function.outputs],
        name="",
    )
    return made


def _kind(tensor: Any, has_rows: bool) -> _Kind | None:
    rank = tensor.shape.rank
    if rank is None or (has_rows and rank == 0):
        return None
    return _Kind(has_rows, rank, tensor.shape[0] if rank and not has_rows else None)


def _of_output(operation: Any, inputs: list[_Kind | None], output: Any) -> _Kind | None:
    if operation.type == "Const" or (inputs and all(kind is not None and not kind.has_rows for kind in inputs)):
        return _kind(output, has_rows=False)
    if any(kind is None for kind in inputs):
        return None
    known = [kind for kind in inputs if kind is not None]
    return _kind(output, has_rows=True) if _RULES[operation.type](operation, known) else None


def _is_broadcast(_: Any, inputs: list[_Kind]) -> bool:
    rank, *others = {kind.rank for kind in inputs if kind.has_rows}
    return not others and all(
        kind.has_rows or kind.rank < rank or (kind.rank == rank and kind.first == 1) for kind in inputs
    )


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


def _is_concatenation(operation: Any, inputs: list[_Kind]) -> bool:
    axis, parts = _constant(operation.inputs[-1]), inputs[:-1]
    return all(kind.has_rows for kind in parts) and _is_behind_rows(axis, parts[0].rank)


def _is_stack(operation: Any, inputs: list[_Kind]) -> bool:
    return all(kind.has_rows for kind in inputs) and _is_behind_rows(operation.get_attr("axis"), inputs[0].rank + 1)


def _is_slice_of_each(operation: Any, inputs: list[_Kind]) -> bool:
    if not inputs[0].has_rows or any(kind.has_rows for kind in inputs[1:]):
        return False
    begins, ends, ellipsis, shrinks, is_new = (
        operation.get_attr(f"{name}_mask") & 1 for name in ("begin", "end", "ellipsis", "shrink_axis", "new_axis")
    )
    steps = _constant(operation.inputs[3])
    if ellipsis:  # stands for the first axis, if the others do not name that many
        return steps is not None and len(steps) - 1 < inputs[0].rank
    return bool(begins and ends) and not shrinks and not is_new and steps is not None and int(steps[0]) == 1


def _is_transposition(operation: Any, inputs: list[_Kind]) -> bool:
    axes = _constant(operation.inputs[1])
    return inputs[0].has_rows and axes is not None and int(axes[0]) == 0


def _is_parser(operation: Any, inputs: list[_Kind]) -> bool:
    # Features of fixed length: others are sparse, ragged, or as long as the longest one of the batch.
    is_fixed = all(shape.is_fully_defined() for shape in map(tf.TensorShape, operation.get_attr("dense_shapes")))
    is_dense = not (operation.get_attr("num_sparse") or operation.get_attr("ragged_value_types"))
    return is_fixed and is_dense and inputs[0].has_rows and not any(kind.has_rows for kind in inputs[1:])


_RULES: dict[str, Callable[[Any, list[_Kind]], bool]] = {
    **dict.fromkeys(_UNARY, lambda _, inputs: len(inputs) == 1),
    **dict.fromkeys(_BROADCAST, _is_broadcast),
    "GatherV2": _is_gather,
    "OneHot": _is_one_hot,
    "ExpandDims": _is_expand_dims,
    "Squeeze": _is_squeeze,
    "ArgMax": _is_arg_max,
    "Reshape": _is_reshape,
    "ResizeNearestNeighbor": _is_resize,
    "Bucketize": lambda _, inputs: inputs[0].has_rows,
    "ConcatV2": _is_concatenation,
    "Pack": _is_stack,
    "ParseExampleV2": _is_parser,
    "StridedSlice": _is_slice_of_each,
    "Transpose": _is_transposition,
}
