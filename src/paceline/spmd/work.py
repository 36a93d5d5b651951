"""How much an operation computes: floating-point operations, estimated from the sizes of its tensors. Pure.

| operation | counted |
|---|---|
| products of matrices, einsums | 2 for each entry of the output and each contracted index |
| convolutions, and their gradients | 2 for each entry of the result, and each weight that it meets |
| sums, maxima and their like | 1 for each entry that is read |
| what only names or reshapes a tensor | nothing |
| all else | 1 for each entry of the outputs |

An entry of `exp` costs more than one of `add`, and memory is not counted: the numbers compare parts of one step.
"""

import math
from collections.abc import Iterable, Sequence

from paceline.spmd.decisions import Operation
from paceline.spmd.fusion import FusedUpdates
from paceline.spmd.placements import Dims, Spec
from paceline.spmd.sizes import ONE, ROWS, Size

_FREE = frozenset(
    [
        *("Identity", "IdentityN", "StopGradient", "PreventGradient", "EnsureShape", "Const", "Placeholder", "NoOp"),
        *("Reshape", "ExpandDims", "Squeeze", "Shape", "ShapeN", "Size", "Rank", "ReadVariableOp", "VariableShape"),
        *("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"),  # their bodies count by themselves
        *("TensorListReserve", "EmptyTensorList", "TensorListFromTensor", "TensorListStack", "TensorListSetItem"),
        *("TensorListGetItem", "TensorListPushBack", "TensorListPopBack", "TensorListLength"),
        "TensorListElementShape",
    ]
)

_READS_ALL = frozenset(
    [
        *("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "ArgMax", "ArgMin", "L2Loss", "BiasAddGrad", "TopKV2"),
        *("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "UnsortedSegmentSum"),
        *("EuclideanNorm", "SegmentSumV2"),
    ]
)


def work_of(op: Operation, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Size:
    """The floating-point operations of `op` on the whole batch; an open size of which nothing is known is `ROWS`.

    Args:
        op: The operation.
        inputs: What is known of its inputs.
        outputs: And of its outputs.
    """
    if op.type in _FREE:
        return Size.of(0)
    if isinstance(op, FusedUpdates):
        return Size.of(op.work)
    if (product := _of_product(op, [spec.dims for spec in inputs], [spec.dims for spec in outputs])) is not None:
        return product * 2
    if op.type in _READS_ALL:
        return entries(inputs[0].dims)
    return sum((entries(spec.dims) for spec in outputs if spec.dims is not None), Size.of(0))


def entries(dims: Iterable[Size] | None) -> Size:
    """How many entries a tensor has; 1 if nothing is known of its dimensions."""
    return math.prod((size if size.known else Size.of(ROWS) for size in dims or ()), start=ONE)


def _of_product(op: Operation, inputs: Sequence[Dims | None], outputs: Sequence[Dims | None]) -> Size | None:
    """The multiplications of a product; None: `op` is none, or nothing is known of its tensors."""
    if op.type == "Einsum":
        return _of_einsum(op, inputs, outputs)
    if "MatMul" in op.type and inputs[0] is not None and len(inputs[0]) > 1:
        is_plain = op.type == "MatMul"
        is_turned = _attribute(op, "transpose_a" if is_plain else "adj_x")
        return entries(outputs[0]) * entries([inputs[0][-2 if is_turned else -1]])
    if not op.type.startswith(("Conv2D", "Conv3D", "DepthwiseConv2dNative")):
        return None
    # The gradients of a convolution multiply as often as it does: each entry of what comes in meets the same weights.
    is_backprop = "Backprop" in op.type
    kernel = outputs[0] if "BackpropFilter" in op.type else inputs[1]
    if kernel is None:
        return None
    met = kernel[:-2] if op.type.startswith("Depthwise") else kernel[:-1]
    return entries(inputs[2] if is_backprop else outputs[0]) * entries(met)


def _of_einsum(op: Operation, inputs: Sequence[Dims | None], outputs: Sequence[Dims | None]) -> Size:
    """The product over all letters; dimensions of an ellipsis are those of the output."""
    left, _, right = op.get_attr("equation").decode().replace(" ", "").partition("->")
    sizes: dict[str, Size] = {}
    for letters, dims in zip(left.split(","), inputs, strict=False):
        if dims is not None and "." not in letters:
            sizes.update(zip(letters, dims, strict=False))
    contracted = [size for letter, size in sizes.items() if letter not in right]
    return entries(outputs[0]) * entries(contracted)


def _attribute(op: Operation, name: str) -> bool:
    try:
        return bool(op.get_attr(name))
    except ValueError:  # a product of another kind, such as a sparse one
        return False
