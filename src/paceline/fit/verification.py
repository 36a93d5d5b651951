"""Before the first step: some rows of the first batch go through the divided and through the undivided graph.

    rows of all ranks ─► undivided graph, on every rank ─► outputs, variables ─┐
                     └─► divided graph, uneven parts    ─► outputs, variables ─┴─► alike but for rounding?

Afterwards variables are what they were before; what draws from a state in its kernel has kernels of its own here. If
the runs differ on few rows, the whole batch decides. All ranks come to the same verdict.
"""

import contextlib
import ctypes
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.group import Array, Group
from paceline.data.own_rows.division import rows_of
from paceline.data.own_rows.replicated import WholeRows
from paceline.fit.likeness import (
    COARSEST,
    ROUNDINGS,
    TENSOR_FLOAT,
    Number,
    disturbance,
    disturbed,
    first_difference,
    rows_given,
    uneven_parts,
)
from paceline.fit.predictions import of_all_ranks
from paceline.spmd import compat
from paceline.spmd.partition import Partitioner
from paceline.spmd.rules.effects import can_be_repeated, has_seed
from paceline.strategy.graph_collectives import GraphCollectives

_NONE_LEFT = -1

_MOST_DISTURBED_RUNS = 4


@dataclass(frozen=True)
class Verdict:
    """What the comparison of a divided graph with the undivided one has come to; the same on all ranks.

    Args:
        difference: The first number that differs, in words; empty: none does.
        unknown: Why the graphs were not compared; empty: they were, or there is no batch.
        num_rows: On how many rows.
    """

    difference: str = ""
    unknown: str = ""
    num_rows: int = 0


class Verification:
    """Compares one divided graph with the undivided one. Outside of all graphs.

    Args:
        partitioner: That divided it.
        traced: The undivided one: a concrete function.
        divided: Of `(all rows, first row, *own inputs)`: a concrete function.
        are_rows: For each component of a batch, whether the ranks divide its rows; None: it is no tensor.
        names: Of variables, by the identity of TensorFlow's.
        collectives: Of the ranks.
        group: The ranks.
        on_one_rank: Whether the last rank computes all rows, because numbers depend on who has which.
    """

    def __init__(
        self,
        partitioner: Partitioner,
        traced: Any,
        divided: Any,
        are_rows: Sequence[bool | None],
        names: Mapping[int, str],
        collectives: GraphCollectives,
        group: Group,
        *,
        on_one_rank: bool = False,
    ) -> None:
        self._traced = traced
        self._divided = divided
        self._are_rows = are_rows
        self._collectives = collectives
        self._group = group
        self._on_one_rank = on_one_rank
        self._operations = list(partitioner.operations(traced))
        self._draws = any(has_seed(op) for op in self._operations)
        by_handle = {id(each.handle): each for each in traced.graph.variables}
        captured = [(outside, compat.type_of_variable(outside)) for outside, _ in traced.graph.captures]
        self._variables = [(handle, dtype) for handle, dtype in captured if dtype is not None]
        """Handles, and types: a graph does not list the variables that it only writes."""
        self._names = [
            *_names_of_outputs(traced),
            *(_name_of(by_handle.get(id(handle)), names) for handle, _ in self._variables),
        ]

    def verdict(self, batch: Any, *, is_whole: bool) -> Verdict:
        """Whether both graphs give the same on a batch. Collective.

        Args:
            batch: This rank's rows of it; None: the data have ended before it.
            is_whole: Whether the graph takes batches of this size only.
        """
        if unrepeatable := sorted({op.type for op in self._operations if not can_be_repeated(op)}):
            return Verdict(unknown=f"it would do twice what is to happen once ({', '.join(unrepeatable)})")
        own = _NONE_LEFT if batch is None else int(rows_of(batch))
        counts = [int(count) for count in self._collectives.all_gather(tf.constant([own], tf.int64))]
        if min(counts) < 0 or not sum(counts):
            return Verdict()  # the step will not take place
        try:
            return self._on_first_rows(tf.nest.flatten(batch), counts, is_whole=is_whole)
        finally:
            _give_back_freed_memory()

    def _on_first_rows(self, leaves: Sequence[Any], counts: Sequence[int], *, is_whole: bool) -> Verdict:
        size = self._group.size
        if is_whole:
            return self._on(leaves, counts, self._parts(sum(counts)) if self._on_one_rank else counts)
        few = rows_given(counts, 2 * size + 1)
        verdict = self._on(leaves, few, self._parts(sum(few)))
        if few == counts or verdict == Verdict(num_rows=verdict.num_rows):
            return verdict
        on_all = self._on(leaves, counts, self._parts(sum(counts)))
        return verdict if verdict.difference and on_all.unknown else on_all

    def _parts(self, num_rows: int) -> list[int]:
        """How many of so many rows each rank computes."""
        size = self._group.size
        return [0] * (size - 1) + [num_rows] if self._on_one_rank else uneven_parts(num_rows, size)

    def _on(self, leaves: Sequence[Any], given: Sequence[int], parts: Sequence[int]) -> Verdict:
        """The verdict on `given` first rows of each rank, of which each computes its part. Collective."""
        rank, num_rows = self._group.rank, sum(given)
        whole = [self._of_all(leaf, divided, given[rank]) for leaf, divided in self._components(leaves)]
        first = sum(parts[:rank])
        own = [
            leaf[first : first + parts[rank]] if divided else leaf
            for leaf, (_, divided) in zip(whole, self._components(leaves), strict=True)
        ]
        inputs = tf.nest.flatten(whole, expand_composites=True)
        place = [tf.constant(num_rows, tf.int64), tf.constant(first, tf.int64)]
        before = self._values()
        undivided = _instance(self._traced)
        try:
            expected = self._run(undivided, inputs)
            fault = ""
        except Exception as error:
            fault = f"undivided, it fails on {num_rows} rows ({type(error).__name__}: {_cause_of(error)})"
        finally:
            self._put_back(before)
        if fault := self._first_said(fault):
            return Verdict(unknown=fault)
        try:
            found = self._run(_instance(self._divided), [*place, *tf.nest.flatten(own, expand_composites=True)])
        except Exception as error:
            error.add_note(
                f"while the divided step was compared with the undivided one on {num_rows} rows of the first batch; "
                "with --verify off it is not [verify]"
            )
            raise
        finally:
            self._put_back(before)
        known = len(self._names) - len(self._variables)
        numbers = [
            Number(name, value, None if index < known else before[index - known].numpy())
            for index, (name, value) in enumerate(zip(self._names, expected, strict=True))
        ]
        rounding = self._rounding()
        difference = first_difference(found, numbers, rounding)
        disturbed_runs: list[list[Array]] = []
        while difference and len(disturbed_runs) < _MOST_DISTURBED_RUNS:
            undivided = _instance(self._traced) if self._draws else undivided
            disturbed_runs.append(
                self._disturbed(undivided, inputs, before, disturbance(rounding), len(disturbed_runs))
            )
            difference = first_difference(found, numbers, rounding, disturbed_runs)
        return Verdict(self._first_said(difference), num_rows=num_rows)

    def _components(self, leaves: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        """The tensors of a batch, and whether ranks divide them."""
        for leaf, divided in zip(leaves, self._are_rows, strict=True):
            if divided is not None:
                yield leaf, divided

    def _of_all(self, leaf: Any, divided: bool, count: int) -> Any:
        """The first rows of all ranks. Collective."""
        if isinstance(leaf, WholeRows):
            return leaf.rows
        if not isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
            leaf = tf.convert_to_tensor(leaf)
        if isinstance(leaf, tf.SparseTensor):
            shape = tf.concat([[count], leaf.dense_shape[1:]], 0)
            leaf = tf.sparse.slice(leaf, tf.zeros_like(shape), shape)
        elif not isinstance(leaf, tf.RaggedTensor) and not divided and leaf.shape.rank == 0:
            return leaf
        else:
            leaf = leaf[:count]
        return of_all_ranks(self._collectives, self._group.rank, leaf)

    def _run(self, instance: Any, inputs: Sequence[Any]) -> list[Array]:
        """The outputs of a graph, and what variables are then: arrays that stay as they are."""
        with _as_it_is():
            outputs = instance(*inputs)
        return [value.numpy() for value in [*outputs, *self._values()]]

    def _disturbed(
        self, undivided: Any, inputs: Sequence[Any], before: Sequence[Any], part: float, run: int
    ) -> list[Array]:
        """The undivided graph's numbers, had its inputs and variables been larger or smaller by a part of them.

        Each `run` disturbs in another way.
        """
        inputs = [_disturbed(tensor, part, (run, index)) for index, tensor in enumerate(inputs)]
        try:
            self._put_back([_disturbed(tensor, part, (run, index)) for index, tensor in enumerate(before)])
            return self._run(undivided, inputs)
        finally:
            self._put_back(before)

    def _values(self) -> list[Any]:
        return [tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype) for handle, dtype in self._variables]

    def _put_back(self, values: Sequence[Any]) -> None:
        for (handle, _), value in zip(self._variables, values, strict=True):
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)

    def _rounding(self) -> float:
        """That of the coarsest type in which the graph computes."""
        types = {tensor.dtype for op in self._operations for tensor in op.outputs if tensor.dtype.is_floating}
        rounding = max((ROUNDINGS.get(one.name, COARSEST) for one in types), default=ROUNDINGS["float32"])
        if tf.config.list_logical_devices("GPU") and tf.config.experimental.tensor_float_32_execution_enabled():
            rounding = max(rounding, TENSOR_FLOAT) if tf.float32 in types else rounding
        return rounding

    def _first_said(self, text: str) -> str:
        """What the first of all ranks says that says anything. Collective."""
        texts = self._collectives.all_gather(tf.constant([text]))
        return next((said.decode() for said in texts.numpy() if said), "")


def _cause_of(error: Exception) -> str:
    """The line of a message that says what is wrong: TensorFlow's last one, before the names of nodes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "{{node" not in line]
    return lines[-1] if lines else ""


def looked_at(iterator: Any, num_steps: int) -> tuple[Any, Any]:
    """The first batch of an iterator, None if there is none, and an iterator over that batch and those behind it.

    Args:
        iterator: TensorFlow's, or Python's.
        num_steps: How many batches the execution takes: the iterator over TensorFlow's has no more.
    """
    if not isinstance(iterator, tf.data.Iterator):
        batches = list(itertools.islice(iterator, 1))
        return (batches[0] if batches else None), itertools.chain(batches, iterator)
    batches = list(itertools.islice(_until_the_end(iterator), num_steps))
    if not batches:
        return None, iterator
    spec = iterator.element_spec
    # One dataset, however many batches, as wide as all batches may be: nothing that is traced for it is traced again.
    variants = [tf.data.experimental.to_variant(tf.data.Dataset.from_tensors(batch)) for batch in batches]
    datasets = tf.data.Dataset.from_tensor_slices(tf.stack(variants))
    return batches[0], iter(datasets.flat_map(lambda variant: tf.data.experimental.from_variant(variant, spec)))


def _until_the_end(iterator: Any) -> Any:
    while True:
        try:
            yield next(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):
            return


def _instance(function: Any) -> Any:
    """A function that calls a concrete one, with flat inputs and outputs; its kernels are its own."""
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in function.inputs]
    specs = specs[: len(specs) - len(function.captured_inputs)]

    def instance(*inputs: Any) -> list[Any]:
        types = [output.dtype for output in function.outputs]
        made = tf.raw_ops.StatefulPartitionedCall(args=[*inputs, *function.captured_inputs], Tout=types, f=function)
        return list(made) if types else []

    return tf.function(instance, autograph=False, input_signature=specs).get_concrete_function()


def _give_back_freed_memory() -> None:
    """What the runs have freed. glibc keeps it, and training would never touch it: some 35 of 512 MB of a small job."""
    with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def _as_it_is() -> Iterator[None]:
    """While this lasts, graphs are run as they are: to optimise one takes longer than to run it once."""
    before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})


def _names_of_outputs(traced: Any) -> list[str]:
    """Names of the flat outputs of a graph."""
    pairs = keras.tree.flatten_with_path(traced.structured_outputs)
    tensors = [path for path, leaf in pairs if isinstance(leaf, tf.TensorSpec) or tf.is_tensor(leaf)]
    if len(tensors) != len(traced.outputs):  # ragged ones are several
        return [f"output {index}" for index in range(len(traced.outputs))]
    return [f"the output {'/'.join(map(str, path))!r}" if path else "the output" for path in tensors]


def _disturbed(tensor: Any, part: float, seed: Sequence[int]) -> Any:
    return tf.constant(disturbed(tensor.numpy(), part, seed), tensor.dtype) if tensor.dtype.is_floating else tensor


def _name_of(variable: Any, names: Mapping[int, str]) -> str:
    return "a variable" if variable is None else f"the variable {names.get(id(variable), variable.name)!r}"
