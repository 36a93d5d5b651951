"""A batch on one stage: its rows, and what its micro-batches leave behind there."""

import functools
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from paceline.pipeline.chunk_functions import ChunkFunctions, Pass
from paceline.pipeline.gradient_sums import GradientSums
from paceline.spmd.placements import Sharded


@dataclass
class ChunkSums:
    """What the micro-batches of a batch have left in one chunk.

    Args:
        states: Of `assigned`, as `ChunkTrace.placements` says: the new values that the last micro-batch has computed,
            addends so far, or the rows of each micro-batch.
        sums: Of `summed`, the handles of the variables to which gradients are added.
        slices: Of `looked_up`, a list with the values of each micro-batch, then one with the indices.
        losses: The share of the losses of each micro-batch, if there are any.
        predictions: Of the last chunk: for each micro-batch the model's outputs, if they are wanted.
    """

    states: list[Any]
    sums: list[Any]
    slices: list[list[Any]] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    predictions: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Batch:
    """A global batch.

    Args:
        leaves: Of (x, y, sample_weight).
        bounds: (first row, end) of each micro-batch of this replica.
        functions: By number, of the chunks of this stage.
    """

    leaves: list[Any]
    bounds: list[tuple[int, int]]
    functions: Mapping[int, ChunkFunctions]

    @property
    def num_rows(self) -> int:
        """Of all replicas."""
        return int(self.leaves[0].shape[0])

    @property
    def has_rows(self) -> bool:
        """Whether this replica has any of them."""
        return self.bounds[-1][1] > self.bounds[0][0]

    def signature(self, micro_batch: int) -> Hashable:
        """What the shapes of everything that is made of a micro-batch follow from."""
        begin, end = self.bounds[micro_batch]
        return end - begin, self._shapes

    @functools.cached_property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(leaf.shape[1:]) for leaf in self.leaves)


class WalkedBatch:
    """A batch since the first forward of its micro-batches on this stage, when it begins with the states that are.

    Args:
        batch: Which one.
        gradient_sums: Of this stage.
    """

    def __init__(self, batch: Batch, gradient_sums: GradientSums) -> None:
        self.batch = batch
        self._beginnings = {number: _states(one) for number, one in batch.functions.items()}
        self.sums = {
            number: ChunkSums(
                [
                    [] if isinstance(placement, Sharded) else tf.zeros_like(value)
                    for placement, value in zip(function.trace.placements, self._beginnings[number], strict=True)
                ],
                gradient_sums.handles(function.trace.summed),
                [[] for _ in range(2 * len(function.trace.looked_up))],
            )
            for number, function in batch.functions.items()
        }
        self._totals = {number: self._totals_of(number, function) for number, function in batch.functions.items()}

    def begun(self, chunk: int, index: int) -> Pass:
        """A micro-batch, with what F reads of the batch: data, totals, states."""
        functions = self.batch.functions[chunk]
        one = self._with_data(functions, *self.batch.bounds[index])
        one.feed(functions.totals, self._totals[chunk])
        one.feed(functions.trace.states, self._beginnings[chunk])
        one.feed(functions.trace.so_far, self.sums[chunk].states)
        return one

    def add_forward(self, chunk: int, predictions: list[Any], states: list[Any], loss: Any) -> None:
        """What the F of a micro-batch has left."""
        left, trace = self.sums[chunk], self.batch.functions[chunk].trace
        for at, (placement, state) in enumerate(zip(trace.placements, states, strict=True)):
            left.states[at] = [*left.states[at], state] if isinstance(placement, Sharded) else state
        if loss is not None:
            left.losses.append(loss)  # an addition here would cost each micro-batch some 80 microseconds
        left.predictions.append(predictions)

    def add_slices(self, chunk: int, slices: list[Any]) -> None:
        """Gradients of what a micro-batch has looked up."""
        for of_all, value in zip(self.sums[chunk].slices, slices, strict=False):
            of_all.append(value)

    def slices(self, chunk: int) -> Iterator[Any]:
        """(values, indices) of what is looked up, flat: one micro-batch after the other; if all look alike, the sum."""
        of_all = self.sums[chunk].slices
        for values, indices, are_alike in zip(
            of_all[::2], of_all[1::2], self.batch.functions[chunk].trace.alike, strict=True
        ):
            yield tf.add_n(values) if are_alike else tf.concat(values, 0)
            yield indices[0] if are_alike else tf.concat(indices, 0)

    def states(self, chunk: int) -> list[Any]:
        """What all micro-batches have left of `assigned`."""
        placements = self.batch.functions[chunk].trace.placements
        return [
            tf.concat(state, placement.dim) if isinstance(placement, Sharded) else state
            for placement, state in zip(placements, self.sums[chunk].states, strict=True)
        ]

    def _with_data(self, functions: ChunkFunctions, begin: int, end: int) -> Pass:
        one, trace = Pass(), functions.trace
        one.feed(trace.rows, [tf.constant(value, tf.int64) for value in (self.batch.num_rows, begin, end - begin)])
        for at in functions.read_data:
            one.feed([trace.data[at]], [self.batch.leaves[at]])
        return one

    def _totals_of(self, number: int, functions: ChunkFunctions) -> list[Any]:
        """What follows from the data of all rows: no replica need ask another one."""
        if not functions.totals:
            return []
        one = self._with_data(functions, 0, self.batch.num_rows)
        one.feed(functions.trace.states, self._beginnings[number])
        return functions.of_all_rows(one)


def _states(functions: ChunkFunctions) -> list[Any]:
    return [tf.convert_to_tensor(variable._value) for variable in functions.trace.assigned]
