"""Rules as text: an operation as a map of factors, and the one function that reads such a map.

    MatMul       i k, k j -> i j
    BiasAdd      ... C, C -> ... C
    Conv2D       n H W C, R S C D -> n H2 W2 D

Each name is a *factor*: an index over which the operation runs, as in an einsum (Shardy and JAX's
`custom_partitioning` write rules so). A name with a small letter may be divided over ranks, because the operation
does the same for each of its values; one with a capital must be whole. From the text follows all else:

    the factor that carries the rows is
        in an output           ─► the output is sharded there
        in no output           ─► it is summed over, and the output is partial
        not in an input        ─► that input stays whole: a weight, or something that is broadcast
        in a whole input       ─► own rows are cut out of it

`...` are leading dimensions that are broadcast as NumPy does, and may be divided. `1` is a dimension of one entry.
`[n H W C]` is an input that holds a shape: its entries are the sizes of these factors, and a rank gets the shape of
its own rows.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.spmd.decisions import Decision, Need, Operation, OutputLike, Rebuilt, own
from paceline.spmd.dividing import dividing
from paceline.spmd.placements import Dims, P, Partial, R, Sharded, Spec, new_dims
from paceline.spmd.sizes import ONE, ROWS, UNKNOWN, Size

Linear = tuple[tuple[int, ...], ...]
"""Groups of inputs in each of which the operation is linear, the other inputs being fixed: a product of two has two
groups of one input, a sum of two has one group of two."""

_ELLIPSIS = "..."


@dataclass(frozen=True)
class _Operand:
    factors: tuple[str, ...]
    is_shape: bool


@dataclass(frozen=True)
class FactorMap:
    """A parsed text: the factors of each input and output."""

    inputs: tuple[_Operand, ...]
    outputs: tuple[_Operand, ...]


@functools.cache
def parsed(text: str) -> FactorMap:
    """The map that `text` describes.

    Raises:
        ValueError: If `text` has no arrow.
    """
    left, arrow, right = text.partition("->")
    if not arrow:
        raise ValueError(f"a rule is 'inputs -> outputs', not {text!r}")

    def operands(side: str) -> tuple[_Operand, ...]:
        parts = [part.strip() for part in side.split(",")]
        return tuple(_Operand(tuple(part.strip("[]").split()), part.startswith("[")) for part in parts)

    return FactorMap(operands(left), operands(right))


def decide(op: Operation, specs: Sequence[Spec], text: str, *, linear: Linear = ()) -> Decision | None:
    """What the map of factors says of an operation with these inputs; None if it does not fit them, or only whole
    inputs do.

    Args:
        op: The operation.
        specs: Its inputs.
        text: The map.
        linear: In which inputs the operation is linear: there it keeps addends.
    """
    rule = parsed(text)
    if len(rule.inputs) != len(specs) or len(rule.outputs) != len(op.outputs):
        return None
    named = [_named(operand, spec) for operand, spec in zip(rule.inputs, specs, strict=True)]
    if any(factors is None for factors in named):
        return None
    inputs = [factors or () for factors in named]
    sizes = _sizes(rule, inputs, specs)
    width = max((sum(f.startswith(_ELLIPSIS) for f in factors) for factors in inputs), default=0)
    outputs = [_spread(operand.factors, width) for operand in rule.outputs]
    if any(output.shape.rank not in (None, len(f)) for output, f in zip(op.outputs, outputs, strict=True)):
        return None
    dims = [_output_dims(op, index, factors, sizes) for index, factors in enumerate(outputs)]

    if any(isinstance(spec.placement, Partial) for spec in specs):
        decision = _linear(specs, dims, linear)
        if decision is not None:
            return decision
        specs = [spec.placed(R) if isinstance(spec.placement, Partial) else spec for spec in specs]
    shards = [
        (factor, spec.shard)
        for factors, spec in zip(inputs, specs, strict=True)
        for dim, factor in enumerate(factors)
        if spec.shard is not None and spec.shard.dim == dim and _divisible(factor)
    ]
    if not any(spec.shard for spec in specs):
        return Decision(tuple(R for _ in specs), tuple(Spec(R, each) for each in dims))
    best: Decision | None = None
    for factor, shard in dict.fromkeys(shards):
        if not all(factor in f or _can_be_added(o) for f, o in zip(outputs, op.outputs, strict=True)):
            continue
        decision = _along(factor, shard.block, rule, inputs, outputs, dims, specs)
        if decision is not None and (best is None or _gathers(decision, specs) < _gathers(best, specs)):
            best = decision
    return best


def _divisible(factor: str) -> bool:
    return factor.startswith(_ELLIPSIS) or factor[0].islower()


def _can_be_added(output: OutputLike) -> bool:
    return bool(output.dtype.is_integer or output.dtype.is_floating or output.dtype.is_complex)


def _gathers(decision: Decision, specs: Sequence[Spec]) -> int:
    """How many inputs are needed in another way than they are divided."""
    return sum(spec.shard is not None and need != spec.shard for need, spec in zip(decision.needs, specs, strict=True))


def _spread(factors: tuple[str, ...], width: int) -> tuple[str, ...]:
    """The factors with one for each dimension of the ellipsis, counted from its end, as broadcasting does."""
    if _ELLIPSIS not in factors:
        return factors
    at = factors.index(_ELLIPSIS)
    return (*factors[:at], *(f"{_ELLIPSIS}{number}" for number in range(width, 0, -1)), *factors[at + 1 :])


def _named(operand: _Operand, spec: Spec) -> tuple[str, ...] | None:
    """The factors of an input with this many dimensions (or, of a shape, entries)."""
    if operand.is_shape:
        length = None if spec.content is None or spec.content.ndim != 1 else len(spec.content)
    else:
        length = spec.rank
    if length is None:
        return None
    width = length - len(operand.factors) + (_ELLIPSIS in operand.factors)
    if width < 0 or (width > 0 and _ELLIPSIS not in operand.factors):
        return None
    return _spread(operand.factors, width)


def _entries(operand: _Operand, spec: Spec) -> Dims:
    if operand.is_shape:
        return tuple(spec.content) if spec.content is not None else ()
    return spec.dims or ()


def _sizes(rule: FactorMap, inputs: list[tuple[str, ...]], specs: Sequence[Spec]) -> dict[str, Size]:
    """How many values each factor has, as far as the inputs tell."""
    sizes: dict[str, Size] = {"1": ONE}
    for operand, factors, spec in zip(rule.inputs, inputs, specs, strict=True):
        for factor, size in zip(factors, _entries(operand, spec), strict=True):
            if factor not in sizes:
                sizes[factor] = size
            elif factor.startswith(_ELLIPSIS):
                sizes[factor] = broadcast(sizes[factor], size)
            else:  # all are equal, or the operation fails: the one that says most
                sizes[factor] = max((sizes[factor], size), key=_telling)
    return sizes


def _telling(size: Size) -> int:
    if not size.known:
        return 0
    return 3 if size.number is not None else 2 if ROWS in size.symbols else 1


def broadcast(one: Size, two: Size) -> Size:
    """The size of a dimension of two tensors that are broadcast against each other."""
    if one.number == 1 or one == two:
        return two
    if two.number == 1 or (one.number is not None and one.number > 1):
        return one
    return two if two.number is not None and two.number > 1 else UNKNOWN


def _output_dims(op: Operation, index: int, factors: tuple[str, ...], sizes: dict[str, Size]) -> Dims:
    shape = op.outputs[index].shape
    static = None if shape.rank is None else shape.as_list()
    dims = new_dims([None] * len(factors) if static is None else static, op.name) or ()
    return tuple(
        size if size.number is not None or not sizes.get(factor, UNKNOWN).known else sizes[factor]
        for factor, size in zip(factors, dims, strict=True)
    )


def _linear(specs: Sequence[Spec], dims: list[Dims], linear: Linear) -> Decision | None:
    """Addends stay addends where the operation is linear in them, and where they do not become longer by it."""
    partial = {index for index, spec in enumerate(specs) if isinstance(spec.placement, Partial)}
    group = next((group for group in linear if partial <= set(group)), None)
    if group is None or any(spec.shard is not None for spec in specs):
        return None
    if not dividing.addends_stay and any(
        specs[index].dims is None or specs[index].dims != each for index in partial for each in dims
    ):
        return None
    needs = tuple(P if index in group else R for index in range(len(specs)))
    return Decision(needs, tuple(Spec(P, each) for each in dims))


def _along(
    factor: str,
    block: Size,
    rule: FactorMap,
    inputs: list[tuple[str, ...]],
    outputs: list[tuple[str, ...]],
    dims: list[Dims],
    specs: Sequence[Spec],
) -> Decision | None:
    """The decision if the values of `factor` are divided, in blocks of `block` a row."""
    needs: list[Need] = []
    whole = Size.of(ROWS) * block
    for operand, factors, spec in zip(rule.inputs, inputs, specs, strict=True):
        if factor not in factors:
            needs.append(R)
            continue
        dim = factors.index(factor)
        size = _entries(operand, spec)[dim]
        if operand.is_shape:
            if size != whole and factor.startswith(_ELLIPSIS):
                return None  # what is broadcast may have one row
            content = np.array(spec.content, dtype=object)
            content[dim] = own(whole)
            needs.append(Rebuilt(content))
        elif spec.shard is not None and spec.shard.dim == dim:
            if spec.shard.block != block:
                return None
            needs.append(spec.shard)
        elif size == whole or not factor.startswith(_ELLIPSIS):
            needs.append(Sharded(dim, block))
        elif size.number == 1 and spec.shard is None:
            needs.append(R)
        else:
            return None
    results = []
    for factors, each in zip(outputs, dims, strict=True):
        if factor not in factors:
            results.append(Spec(P, each))
            continue
        dim = factors.index(factor)
        results.append(Spec(Sharded(dim, block), (*each[:dim], whole, *each[dim + 1 :])))
    return Decision(tuple(needs), tuple(results))
