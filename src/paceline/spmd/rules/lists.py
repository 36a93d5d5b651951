"""Lists of tensors, in which loops collect what they compute, and backward loops find it again.

A list's placement, sizes and content are those of its elements; a size that differs from element to element is
`UNKNOWN`. A list without an element is `Open`: it becomes what is put into it. Where a list and an element differ, the
element is made what the list is if that costs no message, else the list becomes whole. So does a list of elements of
which it is not proved that their sizes are alike: of others no one tensor can be made, to be sent.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paceline.spmd.contents import of_sizes
from paceline.spmd.decisions import Decision, Need, Operation, Rebuilt, own, told
from paceline.spmd.placements import Dims, Open, P, Partial, Placement, R, Sharded, Spec, common_content, new_dims
from paceline.spmd.rules.rule import Rule, rules
from paceline.spmd.sizes import ROWS, UNKNOWN, Size

OPEN = Open()


def joined(one: Placement, two: Placement) -> Placement:
    """The placement that both can be made without a message; if there is none, `R`, which takes one."""
    if one == two or isinstance(two, Open):
        return one
    if isinstance(one, Open) or one == R:
        return two
    return one if two == R else R


def can_be(spec: Spec, shard: Sharded) -> bool:
    """Whether a tensor or list can be made rows without a message."""
    if spec.placement == shard:
        return True
    if isinstance(spec.placement, Open):  # unless it was made for elements of another size
        if spec.dims is None:
            return True
        return len(spec.dims) > shard.dim and (not spec.dims[shard.dim].known or spec.dims[shard.dim] == shard.size)
    return (
        spec.placement == R
        and spec.dims is not None
        and len(spec.dims) > shard.dim
        and spec.dims[shard.dim] == shard.size
    )


def common_placement(one: Spec, two: Spec) -> Placement:
    """The placement that two values can be made without a message; if there is none, `R`, which takes one."""
    placement = joined(one.placement, two.placement)
    if isinstance(placement, Sharded) and not (can_be(one, placement) and can_be(two, placement)):
        return R
    return placement


def are_alike(dims: Dims | None) -> bool:
    """Whether all elements of a list with these sizes have the same ones."""
    return dims is not None and all(size.known for size in dims)


def _common_sizes(one: Dims | None, two: Dims | None) -> Dims | None:
    """The sizes of elements of two lists."""
    if one is None or two is None or len(one) != len(two):
        return None
    return tuple(a if a == b else UNKNOWN for a, b in zip(one, two, strict=True))


def _made(op: Operation, specs: Sequence[Spec]) -> Decision:
    """A new list. If its elements' shape counts rows, they are rows; else it becomes what is put into it.

    A number that is as large as the number of rows says nothing: weights may be as long.
    """
    content = specs[0].content
    element = op.get_attr("element_dtype")
    if content is not None and content.ndim == 1:
        rows = [at for at, size in enumerate(content) if ROWS in size.symbols and size.over(Size.of(ROWS)).known]
        if len(rows) == 1 and are_alike(_of_shape(content)):
            lengths = of_sizes(list(content))
            lengths[rows[0]] = own(content[rows[0]])
            shard = Sharded(rows[0], content[rows[0]].over(Size.of(ROWS)))
            return Decision((Rebuilt(lengths), R), (Spec(shard, tuple(content), element=element),))
    return Decision((R, R), (Spec(OPEN, _of_shape(content), element=element),))


def _of_shape(content: Any) -> Dims | None:
    """The sizes of elements of a list that was made for this shape, which may leave some of them open."""
    if content is None or content.ndim != 1:
        return None
    return tuple(UNKNOWN if size == -1 else size for size in content)


def _from_tensor(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """A list of the parts of a tensor along its first dimension."""
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
    dims = item.dims if isinstance(into.placement, Open) else _common_sizes(into.dims, item.dims)
    if op.get_attr("element_dtype").name == "variant":
        dims = None  # a list of lists is whole
    placement = common_placement(into, item) if are_alike(dims) else R
    if isinstance(placement, Open):
        placement = R
    rest = tuple(R for _ in specs[1:-1])
    content = None
    if placement == R:
        content = item.content if isinstance(into.placement, Open) else common_content(into.content, item.content)
    element = into.element or op.get_attr("element_dtype")
    return Decision((placement, *rest, placement), (Spec(placement, dims, content, element),))


def _taken(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """An element out of a list, or all of them side by side."""
    data, shape = specs[0], specs[-1]
    stack = op.type == "TensorListStack"
    static = op.outputs[-1].shape
    dims = new_dims(None if static.rank is None else static.as_list(), op.name)
    if op.outputs[-1].dtype.name == "variant":
        return None
    elements = data.dims if data.dims is not None else _of_shape(shape.content)
    if elements is not None:
        new = new_dims([None] * len(elements), op.name) or ()
        elements = tuple(size if size.known else own_size for size, own_size in zip(elements, new, strict=True))
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
    """The number of elements, which is the same on all ranks."""
    del op
    return Decision((specs[0].placement,), (Spec(R, ()),))


def _shape_of_elements(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """The shape of an element on all ranks, where it is known; of a list without an element, what it was made with."""
    del op
    data = specs[0]
    if data.dims is None or not are_alike(data.dims):
        return None
    return told([data.placement], [Spec(R, (Size.of(len(data.dims)),), of_sizes(data.dims))])


def _resized(op: Operation, specs: Sequence[Spec]) -> Decision:
    """A list stays what it is."""
    del op
    return Decision((specs[0].placement, R), (specs[0],))


def of_lists(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """What operations on tensors do to lists of them: `Identity`, `ZerosLike`, `AddN`."""
    if op.type not in ("Identity", "ZerosLike", "AddN"):
        return None
    total = replace(specs[0], content=None)
    for spec in specs[1:]:
        dims = spec.dims if isinstance(total.placement, Open) else _common_sizes(total.dims, spec.dims)
        total = Spec(common_placement(total, spec) if are_alike(dims) else R, dims, element=total.element)
    return Decision(tuple(total.placement for _ in specs), (total,))


TABLE: dict[str, Rule] = {
    **rules("EmptyTensorList TensorListReserve", _made),
    "TensorListFromTensor": _from_tensor,
    **rules("TensorListSetItem TensorListPushBack", _put),
    **rules("TensorListGetItem TensorListPopBack TensorListStack", _taken),
    "TensorListLength": _length,
    "TensorListElementShape": _shape_of_elements,
    "TensorListResize": _resized,
}
