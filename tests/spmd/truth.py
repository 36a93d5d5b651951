"""Whether what a rule claims is true: an operation is run whole, and then as the rule says on each rank of a few.

This is how PyTorch's DTensor checks its rules (`strategy_validation.py`): every combination of placements of the
inputs is tried, and for each the ranks' outputs, put together, must be what the operation makes of whole inputs.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
from tests.spmd.corpus import Instance
from tests.spmd.corpus.contents import Items

from paceline.spmd.building import Builder
from paceline.spmd.contents import of_numbers
from paceline.spmd.decisions import FIRST_ROW, OWN_ROWS, Decision, Rebuilt
from paceline.spmd.placements import Open, P, Partial, R, Replicated, Sharded, Spec
from paceline.spmd.rules.table import decided, is_exact
from paceline.spmd.sizes import ROWS, Size, Symbol

ALL_ROWS, OTHER_ROWS = 5, 7
DIVISIONS = ((2, 0, 3), (5,), (1, 4))
MOST_COMBINATIONS = 60


class _EagerBuilder(Builder):
    """Runs operations at once."""

    instance: Instance

    def copied(self, op: Any, inputs: list[Any]) -> list[Any]:
        """The outputs of the instance on other inputs."""
        return [tf.constant(output) for output in self.instance.run([tensor.numpy() for tensor in inputs])[0]]


class Wrong(AssertionError):
    """A rule claims what is not true."""


@dataclass(frozen=True)
class Operation:
    """An instance, as rules see an operation."""

    type: str
    name: str
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    attrs: dict[str, Any]

    def get_attr(self, name: str) -> Any:
        """As a traced operation has it: words as bytes, types as `tf.DType`, a constant as its proto."""
        value = self.attrs[name]
        if isinstance(value, np.ndarray):
            return tf.make_tensor_proto(value)
        if isinstance(value, str):
            return tf.as_dtype(value) if name in _TYPES or name.endswith(("type", "Type")) else value.encode()
        if name == "shape" and isinstance(value, tuple):
            return _proto(value)
        return [_proto(shape) for shape in value] if name == "dense_shapes" else value


def _proto(shape: tuple[int, ...]) -> Any:
    return tf.TensorShape([None if size == -1 else size for size in shape]).as_proto()


_TYPES = ("T", "Tidx", "SrcT", "DstT", "dtype", "element_dtype")


def operation(instance: Instance) -> Operation:
    """The instance's operation, with the sizes that a trace knows."""
    sides = [
        [SimpleNamespace(shape=_static(value), dtype=tf.as_dtype(value.dtype)) for value in values]
        for values in (instance.inputs, instance.outputs)
    ]
    return Operation(instance.type, instance.where[2], *sides, instance.attrs)


def _static(value: Any) -> tf.TensorShape:
    if value.dtype in ("resource", "variant"):
        return tf.TensorShape([])
    return tf.TensorShape([few if few == many else None for few, many in value.dims])


class Sizes:
    """The sizes of an instance's dimensions as polynomials, from what they are with five and with seven rows."""

    def __init__(self) -> None:
        self.values: dict[Symbol, int] = {ROWS: ALL_ROWS}

    def of(self, few: int, many: int | None) -> Size:
        """The polynomial that is `few` with five rows, and `many` with seven."""
        if few == many:
            return Size.of(few)
        if many is not None and few * OTHER_ROWS == many * ALL_ROWS:
            return Size.of(ROWS) * (few // ALL_ROWS)
        if many is not None and many - few == OTHER_ROWS - ALL_ROWS:
            return Size.of(ROWS) + (few - ALL_ROWS)
        symbol = Symbol.new("open")
        self.values[symbol] = few
        return Size.of(symbol)

    def specs(self, instance: Instance) -> list[Spec] | None:
        """What is known of the inputs, all whole."""
        found = []
        for value in instance.inputs:
            if isinstance(value.content, Items) or value.content is None:
                return None
            if value.dtype == "resource":
                found.append(Spec(R, ()))
                continue
            dims = tuple(self.of(few, many) for few, many in value.dims)
            found.append(Spec(R, dims, self._content(value)))
        return found

    def _content(self, value: Any) -> Any:
        array = np.asarray(value.content)
        if array.dtype.kind not in "iub" or array.size > 64:
            return None
        if value.constant:
            return of_numbers(array)
        more = value.with_more_rows
        if more is None or np.shape(more) != array.shape:
            return None
        sizes = [
            self.of(int(few), int(many)) for few, many in zip(array.reshape(-1), np.reshape(more, -1), strict=True)
        ]
        content = np.empty(len(sizes), dtype=object)
        content[:] = sizes
        return content.reshape(array.shape)


def placements(specs: Sequence[Spec], instance: Instance) -> Iterator[list[Spec]]:
    """The combinations of placements of the inputs; all whole is the first."""
    ways = []
    for spec, value in zip(specs, instance.inputs, strict=True):
        mine = [spec]
        if value.dtype != "resource" and not value.constant:
            for dim, size in enumerate(spec.dims or ()):
                block = size.over(Size.of(ROWS))
                if ROWS in size.symbols and block.known:
                    mine.append(Spec(Sharded(dim, block), spec.dims))
            if np.asarray(value.content).dtype.kind in "fc":
                mine.append(Spec(P, spec.dims))
        ways.append(mine)
    yield from (list(each) for each in itertools.islice(itertools.product(*ways), MOST_COMBINATIONS + 1))


@dataclass
class Verdict:
    """What was found of one instance with one combination of placements."""

    claimed: bool
    """Whether the rule keeps something divided, or an addend."""


def check(instance: Instance, specs: list[Spec], sizes: Sizes) -> Verdict:
    """Runs the operation as its rule says.

    Raises:
        Wrong: If the ranks' outputs together are not those of the operation on whole inputs.
    """
    op = operation(instance)
    decision = decided(op, specs)
    given = [(spec.placement, spec.dims) for spec in specs]
    claim = f"{decision.needs} -> {[spec.placement for spec in decision.outputs]}"
    told = f"{instance.type} {instance.where} of {given}: {claim}"
    _check_knowledge(instance, decision, sizes, told)
    for way in (decision, *decision.also):
        if _is_whole(way):
            continue  # which cannot be wrong
        for counts in DIVISIONS:
            _check_division(instance, op, way, counts, sizes, told)
    return Verdict(any(not isinstance(spec.placement, Replicated) for spec in decision.outputs))


def _is_whole(way: Decision) -> bool:
    needs_whole = all(isinstance(need, Replicated | Rebuilt) for need in way.needs)
    return needs_whole and all(isinstance(spec.placement, Open | Replicated) for spec in way.outputs)


def _check_knowledge(instance: Instance, decision: Decision, sizes: Sizes, told: str) -> None:
    """Sizes and contents that a rule claims to know are those that were measured."""
    for spec, value in zip(decision.outputs, instance.outputs, strict=True):
        if value.dtype == "resource" or isinstance(spec.placement, Open):  # a list without an element
            continue
        measured = value.dims[1:] if isinstance(value.content, Items) else value.dims
        if spec.dims is not None and len(spec.dims) != len(measured):
            raise Wrong(f"{told}: {spec.dims} for {value.dims}")
        for size, (few, _) in zip(spec.dims or (), measured, strict=False):
            if size.symbols <= set(sizes.values) and size.value(lambda symbol: sizes.values[symbol]) != few:
                raise Wrong(f"{told}: {spec.dims} for {value.dims}")
        if spec.content is None:
            continue
        for entry, true in zip(spec.content.reshape(-1), np.reshape(value.content, -1), strict=True):
            told_of = entry.known and entry.symbols <= set(sizes.values)
            if told_of and entry.value(lambda symbol: sizes.values[symbol]) != int(true):
                raise Wrong(f"{told}: {spec.content} for {value.content}")


def _check_division(
    instance: Instance, op: Operation, decision: Decision, counts: Sequence[int], sizes: Sizes, told: str
) -> None:
    rng = np.random.default_rng(0)
    parts: list[list[Any]] = []
    addends = [
        _addends(rng, np.asarray(value.content), len(counts)) if isinstance(need, Partial) else None
        for value, need in zip(instance.inputs, decision.needs, strict=True)
    ]
    for rank, count in enumerate(counts):
        first = sum(counts[:rank])
        values = {**sizes.values, OWN_ROWS: count, FIRST_ROW: first}
        inputs = []
        for value, need, split in zip(instance.inputs, decision.needs, addends, strict=True):
            inputs.append(_as_needed(value.content, need, values, None if split is None else split[rank]))
        try:
            if decision.build is None:
                parts.append(instance.run(inputs)[0])
            else:
                tensors = {symbol: tf.constant(number, tf.int64) for symbol, number in values.items()}
                builder = _EagerBuilder(SimpleNamespace(rank=rank, size=len(counts)), tensors)
                builder.instance = instance
                parts.append([np.asarray(t) for t in decision.build(builder, op, [tf.constant(i) for i in inputs])])
        except (tf.errors.OpError, ValueError) as error:
            raise Wrong(f"{told}, {count} rows of {counts}: {error}") from error
    for index, (spec, value) in enumerate(zip(decision.outputs, instance.outputs, strict=True)):
        mine = [_array(part[index]) for part in parts]
        if isinstance(spec.placement, Sharded):
            block = spec.placement.block.value(lambda symbol: sizes.values[symbol])
            dim = spec.placement.dim + isinstance(value.content, Items)
            for part, count in zip(mine, counts, strict=True):
                if part.shape[dim] != count * block:
                    raise Wrong(f"{told}: {part.shape} with {count} rows")
            others = {part.shape[:dim] + part.shape[dim + 1 :] for part in mine}
            if len(others) > 1:
                raise Wrong(f"{told}: shapes differ, {[part.shape for part in mine]}")
            whole = np.concatenate(mine, dim)
        elif isinstance(spec.placement, Partial):
            whole = sum(mine[1:], mine[0])
        else:
            whole = mine[0]
        largest = max((float(np.max(np.abs(part), initial=0)) for part in mine if part.dtype.kind in "fc"), default=0.0)
        told_of = f"{told}, output {index} with {counts} rows"
        _assert_same(whole, _array(value.content), largest, told_of)
        has_addends = any(isinstance(each, Partial) for each in (*decision.needs, spec.placement))
        if is_exact(op) and not has_addends and not np.array_equal(whole, _array(value.content), _has_nan(whole)):
            raise Wrong(f"{told_of}: not the same numbers")


def _has_nan(array: np.ndarray) -> bool:
    return array.dtype.kind in "fc" and bool(np.isnan(array).any())


def _array(content: Any) -> np.ndarray:
    """A tensor, or the elements of a list side by side."""
    return (
        np.stack([item for item in content.arrays if item is not None])
        if isinstance(content, Items)
        else np.asarray(content)
    )


def _addends(rng: Any, whole: np.ndarray, count: int) -> list[np.ndarray]:
    drawn = [rng.standard_normal(whole.shape).astype(whole.dtype) for _ in range(count - 1)]
    return [*drawn, whole - sum(drawn, np.zeros_like(whole))]


def _as_needed(content: Any, need: Any, values: dict[Symbol, int], addend: np.ndarray | None) -> Any:
    if addend is not None:
        return addend
    if isinstance(need, Rebuilt):
        old = np.asarray(content)
        entries = [
            entry.value(lambda symbol: values[symbol]) if entry.known else old.reshape(-1)[at]
            for at, entry in enumerate(need.content.reshape(-1))
        ]
        return np.array(entries, dtype=old.dtype).reshape(need.content.shape)
    if isinstance(need, Sharded):
        block = need.block.value(lambda symbol: values[symbol])
        first, count = values[FIRST_ROW] * block, values[OWN_ROWS] * block
        return np.take(np.asarray(content), np.arange(first, first + count), need.dim)
    return content


def _assert_same(one: np.ndarray, other: np.ndarray, largest: float, told: str) -> None:
    if one.shape != other.shape:
        raise Wrong(f"{told}: {one.shape} for {other.shape}")
    if one.dtype.kind in "fc":
        limit = 1e-9 if np.finfo(one.dtype).precision > 10 else 1e-4
        if not np.allclose(one, other, rtol=limit, atol=limit * max(1.0, largest), equal_nan=True):
            raise Wrong(f"{told}: {np.max(np.abs(one - other))} apart")
    elif not np.array_equal(one, other):
        raise Wrong(f"{told}: {one} for {other}")
