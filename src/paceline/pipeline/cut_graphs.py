"""A graph in which some tensors are given, cut into functions: what each reads, and what crosses from one to another.

    given ─► operations behind some tensors ─► crossing ─► operations behind others

Both the functions of a chunk that is run (`chunk_functions.py`) and those of a layer that is measured
(`layer_functions.py`) are cut here.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.pipeline.direct_calls import DirectFunction

_READS = ("ReadVariableOp", "VarHandleOp", "Placeholder")
"""Stateful for TensorFlow, but their results can be had twice."""


class CutGraph:
    """A graph, and what is given to its functions. Tensors are known by their identity.

    Args:
        wrapped: The graph as a function, which can be pruned.
        given: Tensors of it that each function may be given.
        lasting: Those of `given`, as weights, that are the same for all micro-batches: what follows from them alone
            does not cross but is computed again.
    """

    def __init__(self, wrapped: Any, given: Sequence[Any], lasting: Sequence[Any] = ()) -> None:
        self._wrapped, self._given = wrapped, list(given)
        self._keys = {id(tensor) for tensor in given}
        begin = {id(tensor) for tensor in lasting}
        self._of_micro_batch = self._reached([tensor for tensor in given if id(tensor) not in begin])

    def crossing(self, sources: set[Any], targets: set[Any]) -> list[Any]:
        """The outputs of the operations `sources` that `targets` read: of each operation all or none, as TensorFlow
        lifts no operation of which some outputs are given.
        """
        read = {
            tensor.op: None
            for operation in targets
            for tensor in operation.inputs
            if tensor.op in sources and tensor.op in self._of_micro_batch and id(tensor) not in self._keys
        }
        return [output for operation in sorted(read, key=lambda one: str(one.name)) for output in operation.outputs]

    def function(self, crossed: Sequence[Any], fetches: Sequence[Any]) -> "GraphFunction":
        """A function of what it needs of `given`, and of all of `crossed`."""
        ends = {id(tensor) for tensor in crossed} | self._keys
        needed = _needed(fetches, ends)
        given = [tensor for tensor in self._given if id(tensor) in needed]
        return GraphFunction(self._wrapped, [*given, *crossed], list(fetches))

    def _reached(self, begin: Sequence[Any]) -> set[Any]:
        """The operations whose results depend on `begin`, or cannot be had twice, as numbers that are drawn."""
        operations = self._wrapped.graph.get_operations()
        reached = {tensor.op for tensor in begin}
        reached |= {one for one in operations if one.op_def.is_stateful and one.type not in _READS}
        readers: dict[Any, list[Any]] = {}
        for operation in operations:
            for tensor in operation.inputs:
                readers.setdefault(tensor.op, []).append(operation)
        left = list(reached)
        while left:
            found = [one for one in readers.get(left.pop(), ()) if one not in reached]
            reached.update(found)
            left += found
        return reached


class GraphFunction:
    """A part of a graph; traced when it is first called.

    Args:
        wrapped: The graph.
        feeds: Tensors of it that are given.
        fetches: Tensors of it that are wanted; one that is given, too, is handed through.
    """

    def __init__(self, wrapped: Any, feeds: list[Any], fetches: list[Any]) -> None:
        self._wrapped, self.feeds, self.fetches = wrapped, feeds, fetches

    def __call__(self, values: Mapping[int, Any]) -> list[Any]:
        """The values of `fetches`.

        Args:
            values: By the identity of a tensor, what is known.
        """
        return self._function(*[values[id(feed)] for feed in self.feeds])

    @functools.cached_property
    def _function(self) -> DirectFunction:
        return DirectFunction(self._wrapped.prune(self.feeds, self.fetches))


def behind(tensors: Iterable[Any]) -> set[Any]:
    """The operations that compute `tensors`."""
    found: set[Any] = set()
    left = [tensor.op for tensor in tensors]
    while left:
        if (operation := left.pop()) not in found:
            found.add(operation)
            left += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    return found


def each_once(tensors: Iterable[Any]) -> list[Any]:
    """Of several that are the same the first."""
    return list({id(tensor): tensor for tensor in tensors}.values())


def parted(values: Sequence[Any], lengths: Sequence[int]) -> list[list[Any]]:
    """Parts of these lengths, one after the other, and the rest."""
    parts, begin = [], 0
    for length in lengths:
        parts.append(list(values[begin : begin + length]))
        begin += length
    return [*parts, list(values[begin:])]


def _needed(fetches: Sequence[Any], ends: set[int]) -> set[int]:
    """Which of the tensors `ends` the computation of `fetches` begins with."""
    found: set[int] = set()
    seen: set[Any] = set()
    operations: list[Any] = []

    def begin_with(tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            if id(tensor) in ends:
                found.add(id(tensor))
            else:
                operations.append(tensor.op)

    begin_with(fetches)
    while operations:
        if (operation := operations.pop()) not in seen:
            seen.add(operation)
            begin_with(operation.inputs)
            for control in operation.control_inputs:
                if control.outputs:
                    begin_with(control.outputs[:1])
                else:
                    operations.append(control)
    return found
