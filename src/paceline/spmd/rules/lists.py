"""Lists of tensors, in which loops collect what they compute, and backward loops find it again.

A list's placement, sizes and content are those of its elements. A list without an element is `Open`: it becomes what
is put into it. Where a list and an element differ, the element is made what the list is if that costs no message, else
the list becomes whole.
"""

from collections.abc import Sequence
from typing import Any

from paceline.spmd.contents import of_sizes
from paceline.spmd.decisions import Decision, Need, Operation, Rebuilt, own
from paceline.spmd.placements import Dims, Open, P, Partial, Placement, R, Sharded, Spec, common_content, new_dims
from paceline.spmd.rules.rule import Rule, rules
from paceline.spmd.sizes import ROWS, Size

OPEN = Open()


def joined(one: Placement, two: Placement) -> Placement:
    """The placement that both can be made without a message; if there is none, `R`, which takes one."""
    if one == two or isinstance(two, Open):
        return one
    if isinstance(one, Open) or one == R:
        return two
    return one if two == R else R


def _made(op: Operation, specs: Sequence[Spec]) -> Decision:
    """A new list. If its elements' shape counts rows, they are rows; of other elements nothing is known yet."""
    content = specs[0].content
    element = op.get_attr("element_dtype")
    if content is not None and content.ndim == 1:
        rows = [
            at
            for at, size in enumerate(content)
            if size.known and size.over(Size.of(ROWS)).known and ROWS in size.symbols
        ]
        if len(rows) == 1:
            lengths = of_sizes(list(content))
            lengths[rows[0]] = own(content[rows[0]])
            shard = Sharded(rows[0], content[rows[0]].over(Size.of(ROWS)))
            return Decision((Rebuilt(lengths), R), (Spec(shard, _known(content), element=element),))
    return Decision((R, R), (Spec(OPEN, None, element=element),))


def _known(content: Any) -> Dims | None:
    """The content of a shape as sizes, if all are known."""
    if content is None or any(not size.known or size == -1 for size in content):
        return None
    return tuple(content)


def _from_tensor(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    data, shape = specs
    element = op.get_attr("element_dtype")
    dims = None if data.dims is None else data.dims[1:]
    if isinstance(data.placement, Partial):
        return Decision((P, R), (Spec(P, dims, element=element),))
    if data.shard is None or data.shard.dim == 0:
        return Decision((R, R), (Spec(R, dims, element=element),))
    shard = Sharded(data.shard.dim - 1, data.shard.block)
    need = _element_shape(shape, shard)
    return None if need is None else Decision((data.shard, need), (Spec(shard, dims, element=element),))


def _element_shape(shape: Spec, shard: Sharded) -> Need | None:
    """The shape of an element, as a rank has it that has these rows of each."""
    if shape.content is None or shape.content.ndim == 0:
        return R if shape.rank == 0 else None
    size = shape.content[shard.dim]
    if size == -1:
        return R
    if size != shard.size:
        return None
    lengths = of_sizes(list(shape.content))
    lengths[shard.dim] = own(size)
    return Rebuilt(lengths)


def _put(op: Operation, specs: Sequence[Spec]) -> Decision:
    """An element into a list: `SetItem`, `PushBack`."""
    into, item = specs[0], specs[-1]
    placement = joined(into.placement, item.placement)
    if isinstance(placement, Open):
        placement = R
    dims = item.dims if isinstance(into.placement, Open) else into.dims
    if into.dims is not None and item.dims is not None and len(into.dims) != len(item.dims):
        dims = None
    elif into.dims is not None and item.dims is not None:
        dims = tuple(
            one if one == two else _differing(op, axis)
            for axis, (one, two) in enumerate(zip(into.dims, item.dims, strict=True))
        )
    rest = tuple(R for _ in specs[1:-1])
    content = None
    if placement == R:
        content = item.content if isinstance(into.placement, Open) else common_content(into.content, item.content)
    element = into.element or op.get_attr("element_dtype")
    return Decision((placement, *rest, placement), (Spec(placement, dims, content, element),))


def _differing(op: Operation, axis: int) -> Size:
    dims = new_dims([None], f"{op.name}.{axis}")
    assert dims is not None
    return dims[0]


def _taken(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """An element out of a list, or all of them side by side."""
    data, shape = specs[0], specs[-1]
    stack = op.type == "TensorListStack"
    static = op.outputs[-1].shape
    dims = new_dims(None if static.rank is None else static.as_list(), op.name)
    elements = data.dims if data.dims is not None else _known(shape.content) if shape.rank == 1 else None
    if elements is not None:
        if dims is None:
            dims = (*(new_dims([None], op.name) or ()), *elements) if stack else elements
        else:
            own_dims = dims[1:] if stack else dims
            if len(own_dims) == len(elements):
                merged = tuple(a if a.number is not None else b for a, b in zip(own_dims, elements, strict=True))
                dims = (dims[0], *merged) if stack else merged
    rest: list[Need] = [R for _ in specs[1:]]
    placement: Placement = R if isinstance(data.placement, Open) else data.placement
    kept = data.placement
    if data.shard is not None:
        need = _element_shape(shape, data.shard)
        if need is None:
            return None
        rest[-1] = need
        if stack:
            placement = data.shard.at(data.shard.dim + 1)
        if dims is not None and isinstance(placement, Sharded):
            dims = (*dims[: placement.dim], placement.size, *dims[placement.dim + 1 :])
    outputs = [Spec(placement, dims, None if stack else data.content)]
    if op.type == "TensorListPopBack":
        outputs.insert(0, Spec(kept, data.dims, data.content, data.element))
    return Decision((kept, *rest), tuple(outputs))


def _length(op: Operation, specs: Sequence[Spec]) -> Decision:
    del op
    return Decision((specs[0].placement,), (Spec(R, ()),))


def _shape_of_elements(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """The shape of an element on all ranks, where it is known; of a list without an element, what it was made with."""
    del op
    data = specs[0]
    if data.dims is None:
        return None
    output = Spec(R, (Size.of(len(data.dims)),), of_sizes(data.dims))

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        del inputs
        return [builder.content(output.content, op.outputs[0].dtype)]

    return Decision((data.placement,), (output,), build)


def _resized(op: Operation, specs: Sequence[Spec]) -> Decision:
    del op
    return Decision((specs[0].placement, R), (specs[0],))


def of_lists(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """What operations on tensors do to lists of them: `Identity`, `ZerosLike`, `AddN`."""
    if op.type not in ("Identity", "ZerosLike", "AddN"):
        return None
    placement, dims = specs[0].placement, specs[0].dims
    for spec in specs[1:]:
        placement = joined(placement, spec.placement)
        dims = spec.dims if dims is None else dims
    return Decision(tuple(placement for _ in specs), (Spec(placement, dims, element=specs[0].element),))


TABLE: dict[str, Rule] = {
    **rules("EmptyTensorList TensorListReserve", _made),
    "TensorListFromTensor": _from_tensor,
    **rules("TensorListSetItem TensorListPushBack", _put),
    **rules("TensorListGetItem TensorListPopBack TensorListStack", _taken),
    "TensorListLength": _length,
    "TensorListElementShape": _shape_of_elements,
    "TensorListResize": _resized,
}
