"""Operations that move entries: transposes, concatenations, gathers, slices, paddings.

Rows that are concatenated, sliced, or picked by number are no longer a rank's own, so such operations get whole
tensors.
"""

from collections.abc import Sequence
from dataclasses import replace

from paceline.spmd.contents import of_sizes, strided
from paceline.spmd.decisions import Decision, Need, Operation, Rebuilt, own
from paceline.spmd.factors import decide
from paceline.spmd.placements import P, Partial, R, Sharded, Spec, new_dims
from paceline.spmd.rules import no_rows
from paceline.spmd.rules.rule import MapOfFactors, Rule, letters, rules
from paceline.spmd.sizes import Size


def _joined(factors: Sequence[str]) -> str:
    return " ".join(factors)


def _transpose(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Rows go where their dimension goes."""
    order = specs[1].numbers()
    if order is None:
        return None
    factors = letters(len(order))
    text = f"{_joined(factors)}, Z -> {_joined([factors[axis] for axis in order])}"
    if isinstance(specs[0].placement, Partial):
        return _moved_addends(op, specs, text)
    return decide(op, specs, text)


def _moved_addends(op: Operation, specs: Sequence[Spec], text: str) -> Decision | None:
    """Addends that are only moved stay addends: the first input is one, the others are whole."""
    if any(isinstance(spec.placement, Partial) or spec.shard for spec in specs[1:]):
        return None
    decision = decide(op, [specs[0].placed(R), *specs[1:]], text)
    if decision is None:
        return None
    return Decision((P, *decision.needs[1:]), tuple(output.placed(P) for output in decision.outputs))


def _expand_dims(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Rows stay, beside a new dimension of one entry."""
    rank, axis = specs[0].rank, specs[1].numbers()
    if rank is None or axis is None:
        return None
    factors = letters(rank)
    at = axis[0] % (rank + 1)
    text = f"{_joined(factors)},{' Z' if specs[1].rank else ''} -> {_joined([*factors[:at], '1', *factors[at:]])}"
    if isinstance(specs[0].placement, Partial):
        return _moved_addends(op, specs, text)
    return decide(op, specs, text)


def _squeeze(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Rows stay, unless theirs is the dimension that goes."""
    rank, axes = specs[0].rank, op.get_attr("squeeze_dims")
    if rank is None or not axes:
        return None  # which dimensions have one entry may differ from rank to rank
    gone = {axis % rank for axis in axes}
    factors = ["D" + str(axis) if axis in gone else factor for axis, factor in enumerate(letters(rank))]
    text = f"{_joined(factors)} -> {_joined([factor for axis, factor in enumerate(factors) if axis not in gone])}"
    if isinstance(specs[0].placement, Partial):
        return _moved_addends(op, specs, text)
    return decide(op, specs, text)


def _all_addends(op: Operation, specs: Sequence[Spec], data: slice, text: str) -> Decision | None:
    """Addends of all parts are put together; whole parts become addends for it."""
    parts = range(*data.indices(len(specs)))
    if any(spec.shard for spec in specs):
        return None
    decision = decide(op, [spec.placed(R) for spec in specs], text)
    if decision is None or any(
        isinstance(specs[index].placement, Partial) for index in range(len(specs)) if index not in parts
    ):
        return None
    needs = tuple(P if index in parts else need for index, need in enumerate(decision.needs))
    return Decision(needs, tuple(output.placed(P) for output in decision.outputs))


def _concat(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Side by side along another dimension than that of the rows."""
    parts, axis = specs[:-1], specs[-1].numbers()
    rank = parts[0].rank
    if axis is None or rank is None:
        return None
    at = axis[0] % rank
    factors = letters(rank)
    inputs = [_joined([*factors[:at], f"D{index}", *factors[at + 1 :]]) for index in range(len(parts))]
    text = f"{', '.join(inputs)}, -> {_joined([*factors[:at], 'D', *factors[at + 1 :]])}"
    if any(isinstance(spec.placement, Partial) for spec in parts):
        return _all_addends(op, specs, slice(0, len(parts)), text)
    decision = decide(op, specs, text)
    total = Size.of(0)
    for part in parts:
        total = total + part.dims[at] if part.dims is not None else Size(None)
    if decision is None or not total.known or decision.outputs[0].dims is None:
        return decision
    dims = decision.outputs[0].dims
    return replace(decision, outputs=(Spec(decision.outputs[0].placement, (*dims[:at], total, *dims[at + 1 :])),))


def _pack(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Side by side along a new dimension."""
    rank = specs[0].rank
    if rank is None:
        return None
    at = op.get_attr("axis") % (rank + 1)
    factors = letters(rank)
    text = f"{', '.join([_joined(factors)] * len(specs))} -> {_joined([*factors[:at], 'N', *factors[at:]])}"
    if any(isinstance(spec.placement, Partial) for spec in specs):
        return _all_addends(op, specs, slice(None), text)
    return decide(op, specs, text)


def _unpack(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Apart along another dimension than that of the rows."""
    return _cut(op, specs, specs[0].rank, op.get_attr("axis"), "{x}", keep=False)


def _split(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Apart along another dimension than that of the rows."""
    data, axis, form = (1, 0, ", {x}") if op.type == "Split" else (0, 2, "{x}, Z,")
    numbers = specs[axis].numbers()
    return None if numbers is None else _cut(op, specs, specs[data].rank, numbers[0], form, keep=True)


def _cut(
    op: Operation, specs: Sequence[Spec], rank: int | None, axis: int, form: str, *, keep: bool
) -> Decision | None:
    """Parts along one dimension, which stays in the parts or not."""
    if rank is None:
        return None
    at = axis % rank
    factors = letters(rank)
    part = _joined([*factors[:at], *(["P"] if keep else []), *factors[at + 1 :]])
    whole = _joined([*factors[:at], "D", *factors[at + 1 :]])
    return decide(op, specs, f"{form.format(x=whole)} -> {', '.join([part] * len(op.outputs))}")


def _reverse(op: Operation, specs: Sequence[Spec]) -> str | None:
    """Dimensions that are turned round must be whole."""
    del op
    rank, axes = specs[0].rank, specs[1].numbers()
    if rank is None or axes is None:
        return None
    turned = {axis % rank for axis in axes}
    factors = _joined([factor.upper() if axis in turned else factor for axis, factor in enumerate(letters(rank))])
    return f"{factors}, Z -> {factors}"


def _pad(op: Operation, specs: Sequence[Spec]) -> str | None:
    """Rows stay where nothing is added before or behind them."""
    del op
    rank, content = specs[0].rank, specs[1].content
    if rank is None or content is None:
        return None
    still = [all(entry == 0 for entry in pair) for pair in content]
    factors = [factor if same else factor.upper() for factor, same in zip(letters(rank), still, strict=True)]
    padded = [factor if same else f"E{axis}" for axis, (factor, same) in enumerate(zip(factors, still, strict=True))]
    return f"{_joined(factors)}, Z Z2{',' if len(specs) == 3 else ''} -> {_joined(padded)}"


def _gather(op: Operation, specs: Sequence[Spec]) -> str | None:
    """An entry along one dimension, which must be whole, for each index."""
    rank, places, axis = specs[0].rank, specs[1].rank, specs[2].numbers()
    if rank is None or places is None or axis is None:
        return None
    batch, at = op.get_attr("batch_dims") % (places + 1), axis[0] % rank
    factors = letters(rank)
    factors[at] = "A"
    indices = [*factors[:batch], *letters(places - batch, "i")]
    outputs = [*factors[:at], *indices[batch:], *factors[at + 1 :]]
    return f"{_joined(factors)}, {_joined(indices)}, -> {_joined(outputs)}"


def _resource_gather(op: Operation, specs: Sequence[Spec]) -> str | None:
    """A row of a variable for each index."""
    places, shape = specs[1].rank, op.outputs[0].shape
    if places is None or shape.rank is None or op.get_attr("batch_dims"):
        return None
    indices = letters(places, "i")
    return f", {_joined(indices)} -> {_joined([*indices, *(f'E{axis}' for axis in range(shape.rank - places))])}"


def _gather_nd(op: Operation, specs: Sequence[Spec]) -> str | None:
    """A part of a tensor, which must be whole, for each index."""
    rank, places, shape = specs[0].rank, specs[1].rank, op.outputs[0].shape
    if rank is None or places is None or shape.rank is None:
        return None
    indices = letters(places - 1, "i")
    rest = shape.rank - len(indices)
    table = [f"A{axis}" for axis in range(rank)]  # all of it whole: TensorFlow refuses one without entries
    return f"{_joined(table)}, {_joined([*indices, 'K'])} -> {_joined([*indices, *table[rank - rest :]])}"


def _segment_sum(op: Operation, specs: Sequence[Spec]) -> str | None:
    """A sum of rows for each segment: over rows, so addends."""
    del op
    rank, places = specs[0].rank, specs[1].rank
    if rank is None or places is None:
        return None
    rows = letters(places, "i")
    rest = [f"E{axis}" for axis in range(rank - places)]
    return f"{_joined([*rows, *rest])}, {_joined(rows)}, -> {_joined(['S', *rest])}"


def _scatter_nd(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Rows that are added into zeros: sums over rows."""
    places, rank, shape = specs[0].rank, specs[1].rank, op.outputs[0].shape
    if places is None or rank is None or shape.rank is None or not shape.is_fully_defined():
        return None
    rows = letters(places - 1, "i")
    rest = [f"E{axis}" for axis in range(rank - len(rows))]
    table = [f"A{axis}" for axis in range(shape.rank - len(rest))]
    return decide(op, specs, f"{_joined([*rows, 'K'])}, {_joined([*rows, *rest])}, Z -> {_joined([*table, *rest])}")


def _slice(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """A rectangle, in which rows stay if all are taken."""
    data, begin, length = specs
    if data.dims is None or begin.content is None or length.content is None:
        return None
    dims = list(
        new_dims(op.outputs[0].shape.as_list() if op.outputs[0].shape.rank is not None else None, op.name) or ()
    )
    if len(dims) != len(data.dims):
        return None
    for axis, (first, count) in enumerate(zip(begin.content, length.content, strict=True)):
        if dims[axis].number is not None:
            continue
        if first == 0 and (count == -1 or count == data.dims[axis]):
            dims[axis] = data.dims[axis]
        elif count.least is not None and count.least >= 0:
            dims[axis] = count
    if isinstance(data.placement, Partial):
        return Decision((P, R, R), (Spec(P, tuple(dims)),))
    if data.shard is None:
        return Decision((R, R, R), (Spec(R, tuple(dims)),))
    at = data.shard.dim
    first, count = begin.content[at], length.content[at]
    if first != 0 or not (count == -1 or count == data.shard.size):
        return None
    lengths = of_sizes(list(length.content))
    lengths[at] = own(data.shard.size)
    dims[at] = data.shard.size
    return Decision((data.shard, R, Rebuilt(lengths)), (Spec(data.shard, tuple(dims)),))


def _strided_index(op: Operation, specs: Sequence[Spec], rank: int) -> list[object] | None:
    """The index of a strided slice for each dimension of its input, and None for each new one."""
    limits = [spec.content for spec in specs]
    if any(limit is None for limit in limits):
        return None
    masked = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end")}
    numbers: list[list[int]] = []
    for name, limit in zip(("begin", "end", "strides"), limits, strict=True):
        assert limit is not None
        line = []
        for position, entry in enumerate(limit):
            number = entry.number
            if number is None:
                number = 0 if masked.get(name, 0) & (1 << position) else _OPEN
            line.append(number)
        numbers.append(line)
    index = strided(op, *numbers)
    if Ellipsis not in index:
        index.append(Ellipsis)
    given = sum(1 for each in index if each is not None and each is not Ellipsis)
    at = next(position for position, each in enumerate(index) if each is Ellipsis)
    return [*index[:at], *([slice(None, None, 1)] * (rank - given)), *index[at + 1 :]]


_OPEN = 1 << 40
"""In place of a limit that is not a number: neither of the first nor the whole of any dimension."""


def _strided_slice(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Dimensions that are taken whole stay what they are."""
    data = specs[0]
    if data.dims is None:
        return None
    index = _strided_index(op, specs[1:], len(data.dims))
    shape = op.outputs[0].shape
    if index is None or shape.rank is None:
        return None
    dims = list(new_dims(shape.as_list(), op.name) or ())
    where: int | None = None
    axis = out = 0
    for each in index:
        if each is None:
            out += 1
            continue
        if isinstance(each, slice):
            if _is_all(each):
                dims[out] = data.dims[axis] if dims[out].number is None else dims[out]
                if data.shard is not None and data.shard.dim == axis:
                    where = out
            out += 1
        axis += 1
    if len(dims) != out:
        return None
    if isinstance(data.placement, Partial):
        return Decision((P, R, R, R), (Spec(P, tuple(dims)),))
    if data.shard is None:
        return Decision((R, R, R, R), (Spec(R, tuple(dims)),))
    if where is None:
        return None
    dims[where] = data.shard.size
    return Decision((data.shard, R, R, R), (Spec(data.shard.at(where), tuple(dims)),))


def _is_all(index: slice) -> bool:
    return index.start in (None, 0) and index.stop is None and index.step == 1


def _strided_slice_gradient(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """The gradient of such a slice: zeros around it."""
    shape, gradient = specs[0].content, specs[4]
    if shape is None or any(not entry.known for entry in shape):
        return None
    index = _strided_index(op, specs[1:4], len(shape))
    if index is None:
        return None
    dims = tuple(shape)
    if isinstance(gradient.placement, Partial):
        return None
    if gradient.shard is None:
        return Decision((R,) * 5, (Spec(R, dims),))
    axis = out = 0
    for each in index:
        if each is None:
            out += 1
            continue
        if isinstance(each, slice):
            if out == gradient.shard.dim and _is_all(each) and dims[axis] == gradient.shard.size:
                lengths = of_sizes(list(dims))
                lengths[axis] = own(gradient.shard.size)
                needs: tuple[Need, ...] = (Rebuilt(lengths), R, R, R, gradient.shard)
                return Decision(needs, (Spec(Sharded(axis, gradient.shard.block), dims),))
            out += 1
        axis += 1
    return None


def _one_hot(op: Operation, specs: Sequence[Spec]) -> str | None:
    """A new dimension for each index."""
    rank = specs[0].rank
    if rank is None:
        return None
    factors = letters(rank)
    at = op.get_attr("axis") % (rank + 1)
    return f"{_joined(factors)}, , , -> {_joined([*factors[:at], 'D', *factors[at:]])}"


TABLE: dict[str, Rule] = {
    "Transpose": _transpose,
    "ExpandDims": _expand_dims,
    "Squeeze": _squeeze,
    "ConcatV2": _concat,
    "Pack": _pack,
    "Unpack": _unpack,
    **rules("Split SplitV", _split),
    "ReverseV2": MapOfFactors(_reverse, linear=((0,),)),
    **rules("Pad PadV2", MapOfFactors(_pad)),
    **rules("MirrorPad MirrorPadGrad", MapOfFactors(_pad, without_rows=no_rows.one_more_row)),
    "GatherV2": MapOfFactors(_gather),
    "ResourceGather": MapOfFactors(_resource_gather),
    "GatherNd": MapOfFactors(_gather_nd),
    "UnsortedSegmentSum": MapOfFactors(_segment_sum),
    "ScatterNd": _scatter_nd,
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_gradient,
    "OneHot": MapOfFactors(_one_hot),
}
