"""What is known of small tensors of integers: shapes, and all that is computed from shapes.

A content is an array of `Size`, and NumPy does the same to it as TensorFlow does to the tensor. An operation that is
not listed here leaves nothing known, which is always right: a target shape of which nothing is known makes its
operation take whole tensors.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.spmd.decisions import Operation
from paceline.spmd.factors import broadcast
from paceline.spmd.proofs import chosen, compared, equal, larger, negated, of_two_numbers, remainder, smaller
from paceline.spmd.sizes import ONE, UNKNOWN, Size

Content = np.ndarray
"""An array of `Size`, as `dtype=object`."""

_Evaluate = Callable[[Operation, Sequence[Content]], "Content | list[Content]"]

LARGEST = 256
"""Entries of the longest tensor whose content is followed; shapes are far shorter."""


_TYPES = ("int32", "int64", "bool")
"""The types that hold sizes; of narrower ones, nothing is known."""


def of_numbers(array: Any) -> Content:
    """The content of a constant."""
    array = np.asarray(array)
    return of_sizes([Size.of(int(entry)) for entry in array.reshape(-1)]).reshape(array.shape)


def of_sizes(sizes: Sequence[Size]) -> Content:
    """The content of a shape with these sizes."""
    content = np.empty(len(sizes), dtype=object)
    content[:] = list(sizes)
    return content


def evaluated(op: Operation, contents: Sequence["Content | None"]) -> list["Content | None"]:
    """The contents of the outputs of an operation on inputs with these contents; None where nothing is known."""
    nothing: list[Content | None] = [None] * len(op.outputs)
    evaluate = _EVALUATE.get(op.type)
    if evaluate is None or not all(output.dtype.name in _TYPES for output in op.outputs):
        return nothing
    filled = [
        _unknown(each.shape) if content is None else content for content, each in zip(contents, op.inputs, strict=True)
    ]
    if any(each is None for each in filled):
        return nothing
    try:
        results = evaluate(op, [each for each in filled if each is not None])
    except (_UnforeseenError, ValueError, IndexError):
        return nothing
    listed = results if isinstance(results, list) else [results]
    return [
        _held(np.asarray(each, dtype=object), output.dtype) if np.size(each) <= LARGEST else None
        for each, output in zip(listed, op.outputs, strict=True)
    ]


def _held(content: Content, dtype: Any) -> Content:
    """A content without the numbers that its type cannot hold: there TensorFlow computes modulo a power of two."""
    least, most = (0, 1) if dtype.is_bool else (dtype.min, dtype.max)
    keep = np.frompyfunc(lambda size: size if size.number is None or least <= size.number <= most else UNKNOWN, 1, 1)
    return np.asarray(keep(content), dtype=object)


class _UnforeseenError(Exception):
    """An argument that says how entries move is not known."""


def _unknown(shape: Any) -> "Content | None":
    count = shape.num_elements()
    if count is None or count > LARGEST:
        return None
    return np.full(shape.as_list(), UNKNOWN, dtype=object)


def _number(content: Content) -> int:
    number = content.reshape(-1)[0].number
    if number is None:
        raise _UnforeseenError
    return int(number)


def _numbers(content: Content) -> np.ndarray:
    return np.array([_number(entry) for entry in content.reshape(-1, 1)], dtype=int).reshape(content.shape)


def _axes(content: Content) -> tuple[int, ...]:
    return tuple(int(axis) for axis in _numbers(content).reshape(-1))


def _entrywise(function: Callable[..., Size]) -> _Evaluate:
    def evaluate(op: Operation, contents: Sequence[Content]) -> Content:
        del op
        return np.asarray(np.frompyfunc(function, len(contents), 1)(*contents), dtype=object)

    return evaluate


def _reduced(function: Callable[[Size, Size], Size], start: int) -> _Evaluate:
    def evaluate(op: Operation, contents: Sequence[Content]) -> Content:
        content, axes = contents[0], _axes(contents[1])
        result = content
        for axis in sorted({axis % content.ndim for axis in axes}, reverse=True):
            parts = [np.take(result, index, axis) for index in range(result.shape[axis])]
            shape = result.shape[:axis] + result.shape[axis + 1 :]
            result = np.full(shape, Size.of(start), dtype=object)
            for part in parts:
                result = np.asarray(np.frompyfunc(function, 2, 1)(result, part), dtype=object)
        if op.get_attr("keep_dims"):
            kept = [1 if axis in {a % content.ndim for a in axes} else n for axis, n in enumerate(content.shape)]
            result = result.reshape(kept)
        return result

    return evaluate


def _cast(op: Operation, contents: Sequence[Content]) -> Content:
    if not (op.inputs[0].dtype.is_integer or op.inputs[0].dtype.is_bool):
        raise _UnforeseenError
    if op.outputs[0].dtype.is_bool:
        return np.asarray(np.frompyfunc(lambda size: negated(equal(size, Size.of(0))), 1, 1)(contents[0]), dtype=object)
    return contents[0]


def _reshape(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    return contents[0].reshape(_axes(contents[1]))


def _squeeze(op: Operation, contents: Sequence[Content]) -> Content:
    axes = tuple(op.get_attr("squeeze_dims"))
    return np.squeeze(contents[0], axes or None)


def strided(op: Operation, begin: Sequence[int], end: Sequence[int], strides: Sequence[int]) -> list[Any]:
    """The index that a `StridedSlice` with these numbers is in NumPy's terms."""
    masks = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    index: list[Any] = []
    for position, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        bit = 1 << position
        if masks["ellipsis"] & bit:
            index.append(Ellipsis)
        elif masks["new_axis"] & bit:
            index.append(None)
        elif masks["shrink_axis"] & bit:
            index.append(first)
        else:
            index.append(slice(None if masks["begin"] & bit else first, None if masks["end"] & bit else last, step))
    return index


def _strided_slice(op: Operation, contents: Sequence[Content]) -> Content:
    begin, end, strides = (list(_axes(content)) for content in contents[1:])
    return np.asarray(contents[0][tuple(strided(op, begin, end, strides))], dtype=object)


def _slice(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    begin, length = _axes(contents[1]), _axes(contents[2])
    return contents[0][tuple(slice(b, None if n == -1 else b + n) for b, n in zip(begin, length, strict=True))]


def _pack(op: Operation, contents: Sequence[Content]) -> Content:
    return np.stack(list(contents), op.get_attr("axis"))


def _unpack(op: Operation, contents: Sequence[Content]) -> list[Content]:
    axis = op.get_attr("axis")
    return [np.asarray(np.take(contents[0], index, axis), dtype=object) for index in range(len(op.outputs))]


def _concat(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    return np.concatenate(list(contents[:-1]), _number(contents[-1]))


def _split(op: Operation, contents: Sequence[Content]) -> list[Content]:
    if op.type == "Split":
        return list(np.split(contents[1], len(op.outputs), _number(contents[0])))
    ends = np.cumsum(_numbers(contents[1]))[:-1]
    return list(np.split(contents[0], ends, _number(contents[2])))


def _gather(op: Operation, contents: Sequence[Content]) -> Content:
    if op.get_attr("batch_dims"):
        raise _UnforeseenError
    return np.asarray(np.take(contents[0], _numbers(contents[1]), _number(contents[2])), dtype=object)


def _range(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    numbers = range(*(_number(content) for content in contents))
    if len(numbers) > LARGEST:
        raise _UnforeseenError
    return of_numbers(list(numbers))


def _fill(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    shape = _axes(contents[0])
    if math.prod(shape) > LARGEST:
        raise _UnforeseenError
    return np.full(shape, contents[1].reshape(-1)[0], dtype=object)


def _like(number: int) -> _Evaluate:
    def evaluate(op: Operation, contents: Sequence[Content]) -> Content:
        del op
        return np.full(contents[0].shape, Size.of(number), dtype=object)

    return evaluate


def _stitched(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    half = len(contents) // 2
    entries: dict[int, Size] = {}
    for places, data in zip(contents[:half], contents[half:], strict=True):
        if data.ndim != places.ndim:
            raise _UnforeseenError
        entries.update(zip(_axes(places), data.reshape(-1), strict=True))
    return of_sizes([entries.get(place, Size.of(0)) for place in range(max(entries) + 1)])


def _concat_offsets(op: Operation, contents: Sequence[Content]) -> list[Content]:
    del op
    axis, shapes = _number(contents[0]), contents[1:]
    offset = Size.of(0)
    results = []
    for shape in shapes:
        begin = of_numbers(np.zeros(len(shape), dtype=int))
        begin[axis] = offset
        offset = offset + shape[axis]
        results.append(begin)
    return results


def _tile(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    times = _axes(contents[1])
    if contents[0].size * math.prod(times) > LARGEST:
        raise _UnforeseenError
    return np.tile(contents[0], times)


def _inverted(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    return of_numbers(np.argsort(_numbers(contents[0])))


def _reversed(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    return np.flip(contents[0], _axes(contents[1]))


def _broadcast_shape(op: Operation, contents: Sequence[Content]) -> Content:
    del op
    return of_sizes([broadcast(one, two) for one, two in _padded(contents)])


def _padded(contents: Sequence[Content]) -> list[tuple[Size, Size]]:
    """The sizes of two shapes that are broadcast, side by side."""
    width = max(len(content) for content in contents)
    one, two = ([ONE] * (width - len(content)) + list(content) for content in contents)
    return list(zip(one, two, strict=True))


def _broadcast_axes(op: Operation, contents: Sequence[Content]) -> list[Content]:
    """Over which axes the gradients of two inputs that were broadcast are summed.

    An axis of one entry in one input is summed over there. Where the other one has as many rows, or a size that the
    trace leaves open, this could be one entry, too, and TensorFlow would name the axis for both; the sum over one entry
    changes nothing, and a reshape follows.
    """
    del op
    axes: tuple[list[int], list[int]] = ([], [])
    for axis, sizes in enumerate(_padded(contents)):
        if not (sizes[0] == sizes[1] or any(size.number == 1 for size in sizes)):
            raise _UnforeseenError
        for mine, size in zip(axes, sizes, strict=True):
            if size.number == 1:
                mine.append(axis)
    return [of_numbers(each) for each in axes]


def _scanned(op: Operation, contents: Sequence[Content]) -> Content:
    if op.get_attr("reverse") or op.get_attr("exclusive") or contents[0].ndim != 1:
        raise _UnforeseenError
    return np.asarray((np.multiply if op.type == "Cumprod" else np.add).accumulate(contents[0], dtype=object))


def _constant(op: Operation, contents: Sequence[Content]) -> Content:
    del contents
    count = op.outputs[0].shape.num_elements()
    if count is None or count > LARGEST:
        raise _UnforeseenError
    return of_numbers(tf.make_ndarray(op.get_attr("value")))


_EVALUATE: dict[str, _Evaluate] = {
    "Const": _constant,
    **dict.fromkeys(("Identity", "StopGradient", "PreventGradient", "Snapshot"), lambda _, contents: contents[0]),
    **dict.fromkeys(("Add", "AddV2"), _entrywise(lambda one, two: one + two)),
    "Sub": _entrywise(lambda one, two: one - two),
    "Mul": _entrywise(lambda one, two: one * two),
    "Neg": _entrywise(lambda one: -one),
    "FloorDiv": _entrywise(lambda one, two: one // two),
    "FloorMod": _entrywise(remainder),
    "Maximum": _entrywise(larger),
    "Minimum": _entrywise(smaller),
    "Equal": _entrywise(equal),
    "NotEqual": _entrywise(lambda one, two: negated(equal(one, two))),
    "Less": _entrywise(compared(lambda difference: difference < 0)),
    "LessEqual": _entrywise(compared(lambda difference: difference <= 0)),
    "Greater": _entrywise(compared(lambda difference: difference > 0)),
    "GreaterEqual": _entrywise(compared(lambda difference: difference >= 0)),
    "LogicalAnd": _entrywise(of_two_numbers(lambda one, two: one and two)),
    "LogicalOr": _entrywise(of_two_numbers(lambda one, two: one or two)),
    "LogicalNot": _entrywise(negated),
    "SelectV2": _entrywise(chosen),
    "Prod": _reduced(lambda one, two: one * two, 1),
    "Sum": _reduced(lambda one, two: one + two, 0),
    "All": _reduced(lambda one, two: of_two_numbers(lambda a, b: a and b)(one, two), 1),
    "Any": _reduced(lambda one, two: of_two_numbers(lambda a, b: a or b)(one, two), 0),
    "Cast": _cast,
    "Reshape": _reshape,
    "ExpandDims": lambda _, contents: np.expand_dims(contents[0], _number(contents[1])),
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Slice": _slice,
    "Pack": _pack,
    "Unpack": _unpack,
    "ConcatV2": _concat,
    "Split": _split,
    "SplitV": _split,
    "GatherV2": _gather,
    "Range": _range,
    "Fill": _fill,
    "ZerosLike": _like(0),
    "OnesLike": _like(1),
    "DynamicStitch": _stitched,
    "ConcatOffset": _concat_offsets,
    "Tile": _tile,
    "InvertPermutation": _inverted,
    "ReverseV2": _reversed,
    "Transpose": lambda _, contents: np.transpose(contents[0], _numbers(contents[1])),
    "BroadcastArgs": _broadcast_shape,
    "BroadcastGradientArgs": _broadcast_axes,
    "Cumsum": _scanned,
    "Cumprod": _scanned,
}
