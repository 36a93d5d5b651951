"""Weights that layers of several chunks have, as a language model's embedding, which is its output's matrix, too.

    chunk 0: looks rows up ─► slices ──┐  one sum over
    chunk 3: h @ matrix.T ──► matrix ──┴─ all ranks that have it ─► on each of them the same update, with own slots

All of these ranks begin with the same values and get the same bits of the sum, so the values stay the same, and no
weight is ever sent. What counts over all weights, as a global norm, has the gradient once: on the first stage that has
it.

The sum is made before the graph of the update runs. There it would be one of two collectives of different groups
that do not depend on each other, so TensorFlow could run these in different orders on different ranks.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.counted_group import CountedGroup
from paceline.comm.group import Group, Reduction
from paceline.fit.building import share_values
from paceline.pipeline.chunk_trace import ChunkTrace
from paceline.pipeline.walked_batches import WalkedBatch
from paceline.strategy.graph_collectives import GraphCollectives
from paceline.strategy.pipeline import PipelineStrategy

StagesOf = Sequence[tuple[Any, tuple[int, ...]]]
"""Variables, and the stages that have each, ascending."""


class SharedWeights:
    """Those of one model, as one rank has them. Making one is collective over all ranks.

    Args:
        stages_of: For each variable that several chunks have, the same on all ranks, in the same order.
        strategy: The model's.
        collectives_of: Gives the collectives of a group.
    """

    def __init__(
        self,
        stages_of: StagesOf,
        strategy: PipelineStrategy,
        collectives_of: Callable[[CountedGroup], GraphCollectives],
    ) -> None:
        self._stage, self._fit_group = strategy.stage, strategy.fit_group
        self._stages_of = list(stages_of)
        groups = {stages: strategy.ranks_of(stages) for stages in sorted({stages for _, stages in stages_of})}
        self._groups: dict[tuple[int, ...], CountedGroup] = {
            stages: group for stages, group in groups.items() if group is not None
        }
        self._collectives = {stages: collectives_of(group) for stages, group in self._groups.items()}
        self._known = {id(variable) for variable, _ in self._stages_of}
        self._counted_elsewhere = {id(variable) for variable, stages in stages_of if self._stage != stages[0]}
        self._dense: set[int] = set()
        self._rows: set[int] = set()

    def __contains__(self, variable: object) -> bool:
        return id(variable) in self._known

    def is_counted(self, variable: Any) -> bool:
        """Whether a sum over the weights of all stages has this one's share from this stage."""
        return id(variable) not in self._counted_elsewhere

    def share(self) -> None:
        """Gives the variables the values that they have on the first of the ranks. Collective over all ranks."""
        for stages, group in self._groups.items():
            share_values([variable for variable, own in self._stages_of if own == stages], group)

    def agree(self, traces: Sequence[ChunkTrace]) -> None:
        """Says which gradients there are: all must know of each whether any stage's is dense. Collective.

        Args:
            traces: Of this rank's chunks.
        """
        if not self._stages_of:
            return
        dense = {id(variable) for trace in traces for variable in trace.summed}
        rows = {id(variable) for trace in traces for variable in trace.looked_up}
        own = [np.array([id(one) in found for one, _ in self._stages_of], np.int32) for found in (dense, rows)]
        of_all: Group = self._fit_group
        are_dense, are_rows = of_all.all_reduce(own, Reduction.MAX)
        self._dense = {id(one) for (one, _), is_dense in zip(self._stages_of, are_dense, strict=True) if is_dense}
        self._rows = {
            id(one)
            for (one, _), has_rows in zip(self._stages_of, are_rows, strict=True)
            if has_rows and id(one) not in self._dense
        }

    def _here(self, found: set[int]) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
        """The variables of `found` that are here, by the ranks that sum their gradients."""
        for stages in self._groups:
            if own := [one for one, stages_of in self._stages_of if stages_of == stages and id(one) in found]:
                yield stages, own

    @property
    def specs(self) -> list[Any]:
        """Of what `summed` gives."""
        found = [
            tf.TensorSpec(one.shape, one._value.dtype) for _, variables in self._here(self._dense) for one in variables
        ]
        for _, variables in self._here(self._rows):
            for one in variables:
                found.append(tf.TensorSpec([None, *one.shape[1:]], one._value.dtype))
                found.append(tf.TensorSpec([None], tf.int64))
        return found

    def summed(self, batch: WalkedBatch, slices: Sequence[tuple[Any, Any, Any]], sums: Any) -> list[Any]:
        """The gradients of a batch on all stages and replicas, flat. Eager; collective over those that have them.

        Args:
            batch: Its backward is complete here.
            slices: Of this rank's chunks: variables, with values and indices.
            sums: This stage's `GradientSums`.
        """
        traces = [one.trace for one in batch.batch.functions.values()]
        has_sum = {id(variable) for trace in traces for variable in trace.summed}
        found: list[Any] = []
        for stages, variables in self._here(self._dense):
            own = []
            for one in variables:
                dtype = one._value.dtype
                gradient = sums.read([one])[0] if id(one) in has_sum else tf.zeros(one.shape, dtype)
                for variable, values, indices in slices:
                    if variable is one:
                        gradient = tf.tensor_scatter_nd_add(gradient, indices[:, tf.newaxis], values)
                own.append(gradient)
            found += self._collectives[stages].all_reduce(own)
        for stages, variables in self._here(self._rows):
            for one in variables:
                nothing = tf.zeros([0, *one.shape[1:]], one._value.dtype), tf.zeros([0], tf.int64)
                pairs = [nothing, *((values, indices) for variable, values, indices in slices if variable is one)]
                of_values, of_indices = zip(*pairs, strict=True)
                own_rows = tf.concat(of_values, 0), tf.concat([tf.cast(part, tf.int64) for part in of_indices], 0)
                found += map(self._collectives[stages].all_gather, own_rows)
        return found

    def gradients(self, flat: Sequence[Any]) -> dict[int, Any]:
        """What `summed` gives, by the identity of the variable, as an optimizer takes it."""
        given = iter(flat)
        found = {id(one): next(given) for _, variables in self._here(self._dense) for one in variables}
        for _, variables in self._here(self._rows):
            for one in variables:
                values, indices = next(given), next(given)
                found[id(one)] = tf.IndexedSlices(values, indices, tf.constant(list(one.shape), tf.int64))
        return found
