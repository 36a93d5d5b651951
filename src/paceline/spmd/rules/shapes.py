"""Shapes, and operations that are told a shape.

A shape is about the tensor that one worker has, on every rank; what is known of it is its content (`contents.py`).
Where an operation makes a tensor of own rows, its shape is built anew for them. A reshape keeps rows if it is proved
that each row's entries stay together and in place.
"""

from collections.abc import Sequence

from paceline.spmd.contents import of_sizes
from paceline.spmd.decisions import Decision, Operation, Rebuilt, own, told
from paceline.spmd.dividing import dividing
from paceline.spmd.factors import decide
from paceline.spmd.placements import Dims, P, Partial, R, Sharded, Spec, new_dims
from paceline.spmd.rules.rule import Rule, rules
from paceline.spmd.sizes import ONE, ROWS, Size, counts_rows


def _shapes(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """The sizes on all ranks, which are known without a look at the tensor."""
    del op
    if any(spec.dims is None for spec in specs):
        return None
    listed = [list(spec.dims or ()) for spec in specs]
    outputs = [Spec(R, (Size.of(len(sizes)),), of_sizes(sizes)) for sizes in listed]
    return told([spec.placement for spec in specs], outputs)


def _size(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """The number of entries on all ranks, without a look at the tensor."""
    del op
    if specs[0].dims is None:
        return None
    size = ONE
    for each in specs[0].dims:
        size = size * each
    return told([specs[0].placement], [Spec(R, (), of_sizes([size]).reshape(()))])


def _rank(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """The number of dimensions, without a look at the tensor."""
    del op
    if specs[0].dims is None:
        return None
    return Decision((specs[0].placement,), (Spec(R, (), of_sizes([Size.of(len(specs[0].dims))]).reshape(())),))


def _product(sizes: Sequence[Size]) -> Size:
    result = ONE
    for size in sizes:
        result = result * size
    return result


def target(dims: Dims, content: Sequence[Size]) -> Dims | None:
    """The sizes after a reshape of a tensor with `dims`, that of `-1` worked out; None if they are not known."""
    open_at = [at for at, size in enumerate(content) if size == -1]
    sizes = list(content)
    if len(open_at) == 1:
        rest = _product([size for at, size in enumerate(content) if at != open_at[0]])
        sizes[open_at[0]] = _product(dims).over(rest)
    return tuple(sizes) if all(size.known for size in sizes) else None


def kept_rows(shard: Sharded, dims: Dims, sizes: Dims) -> Sharded | None:
    """Where the rows of a tensor are after a reshape from `dims` to `sizes`; None if it is not proved that they stay
    together.

    The entries before the rows' dimension must be as many as before some dimension of the result that counts rows:

        (a, rows·b, c) ─► (a, rows·b', c')

    As all entries are as many as before, b·c = b'·c', whether these are known or not: a row there has the entries of
    the same row here.
    """
    before = _product(dims[: shard.dim])
    for dim, size in enumerate(sizes):
        block = size.over(Size.of(ROWS))
        if block.known and _product(sizes[:dim]) == before:
            return Sharded(dim, block)
    return None


def _reshape(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Rows stay where the new shape provably keeps them together, as blocks of one dimension."""
    data, shape = specs
    if data.dims is None or shape.content is None:
        return Decision((P, R), (_of_static(op).placed(P),)) if isinstance(data.placement, Partial) else None
    content = list(shape.content)
    sizes = target(data.dims, content)
    if isinstance(data.placement, Partial):
        return Decision((P, R), (Spec(P, sizes) if sizes else _of_static(op).placed(P),))
    if data.shard is None:
        return Decision((R, R), (Spec(R, sizes),)) if sizes else None
    if sizes is None and any(size == -1 for size in content):
        return None  # of no rows, TensorFlow cannot work out that size
    shard = kept_rows(data.shard, data.dims, sizes or tuple(content))
    if shard is None:
        return None
    local = of_sizes(content if sizes is None else list(sizes))
    local[shard.dim] = own(shard.size)
    return Decision((data.shard, Rebuilt(local)), (Spec(shard, sizes or _told(op, content)),))


def _told(op: Operation, content: Sequence[Size]) -> Dims | None:
    """The sizes of a result of which some are not known: new ones in their place."""
    dims = _of_static(op).dims
    if dims is None:
        return None
    return tuple(size if size.known else new for size, new in zip(content, dims, strict=True))


def _of_static(op: Operation) -> Spec:
    shape = op.outputs[0].shape
    return Spec(R, new_dims(None if shape.rank is None else shape.as_list(), op.name))


def _tile(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Copies side by side: a dimension of one entry may become the rows' dimension, others keep their rows."""
    del op
    data, times = specs
    if data.dims is None or times.content is None or any(not entry.known for entry in times.content):
        return None
    sizes = tuple(size * n for size, n in zip(data.dims, times.content, strict=True))
    if isinstance(data.placement, Partial):
        return Decision((P, R), (Spec(P, sizes),)) if dividing.addends_stay else None
    if data.shard is None:
        rows = [at for at, size in enumerate(sizes) if data.dims[at] == 1 and size.over(Size.of(ROWS)).known]
        also: tuple[Decision, ...] = ()
        if len(rows) == 1 and not any(counts_rows(size) for at, size in enumerate(sizes) if at != rows[0]):
            also = (_tiled(data, list(times.content), sizes, rows[0]),)
        return Decision((R, R), (Spec(R, sizes),), also=also)
    if times.content[data.shard.dim] != 1:
        return None
    return Decision((data.shard, R), (Spec(data.shard, sizes),))


def _tiled(data: Spec, times: list[Size], sizes: Dims, at: int) -> Decision:
    times = [own(n) if axis == at else n for axis, n in enumerate(times)]
    shard = Sharded(at, sizes[at].over(Size.of(ROWS)))
    return Decision((data.placement, Rebuilt(of_sizes(times))), (Spec(shard, sizes),))


def _spread(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """`Fill` and `BroadcastTo`: where the shape counts rows, each rank can make its own."""
    fill = op.type == "Fill"
    data, shape = (specs[1], specs[0]) if fill else (specs[0], specs[1])
    decision = decide(op, specs, "[...],  -> ..." if fill else "..., [...] -> ...", linear=((1 if fill else 0,),))
    if decision is None or data.placement != R or shape.content is None:
        return decision
    rows = [at for at, size in enumerate(shape.content) if counts_rows(size)]
    if len(rows) != 1 or not shape.content[rows[0]].over(Size.of(ROWS)).known or decision.outputs[0].dims is None:
        return decision
    at = rows[0]
    axis = at - len(shape.content) + (data.rank or 0)
    if not fill and axis >= 0 and (data.dims is None or data.dims[axis] != 1):
        return decision
    local = of_sizes(list(shape.content))
    local[at] = own(local[at])
    shard = Sharded(at, shape.content[at].over(Size.of(ROWS)))
    needs = (Rebuilt(local), R) if fill else (R, Rebuilt(local))
    also = Decision(needs, (Spec(shard, decision.outputs[0].dims),))
    return Decision(decision.needs, decision.outputs, also=(also,))


TABLE: dict[str, Rule] = {
    **rules("Shape ShapeN", _shapes),
    "Size": _size,
    "Rank": _rank,
    "Reshape": _reshape,
    "Tile": _tile,
    **rules("Fill BroadcastTo", _spread),
}
