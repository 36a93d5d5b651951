"""What the replicas of a stage have in common at the end of a batch, of which each has computed its own rows.

    replica 0: its micro-batches ─► gradients, states ─┐
    replica 1: its micro-batches ─► gradients, states ─┴─► one sum ─► the same update and the same states on both

As each replica's share of a loss and of BatchNormalization's statistics is that of its rows, sums are what one process
would have. A metric's variables are a sum of what the replicas have added to them, so every replica reads the metric of
all rows by itself.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.fit.pipelining.chunk_trace import ChunkTrace
from paceline.strategy.graph_collectives import GraphCollectives


class ReplicaSums:
    """Combines what replicas have.

    Args:
        collectives: Over the replicas of this stage.
        replica: This one.
        replicas: How many.
    """

    def __init__(self, collectives: GraphCollectives, replica: int, replicas: int) -> None:
        self._collectives, self._replica, self._replicas = collectives, replica, replicas

    def combined(
        self,
        traces: Sequence[ChunkTrace],
        states: list[Any],
        gradients: list[Any],
        slices: list[Any],
        alike: Sequence[bool],
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """In the graph of an update: states, gradients and slices of all replicas. Collective over them.

        Args:
            traces: Of the chunks of this stage.
            states: New values of all that the traces say is assigned; none: they are not combined.
            gradients: Dense ones; or none.
            slices: (values, indices) of the others, flat; or none.
            alike: For each pair of `slices`, as `ChunkTrace.alike` has it.
        """
        if self._replicas == 1:
            return states, gradients, slices
        assigned = [variable for trace in traces for variable in trace.assigned] if states else []
        averaged = {id(variable) for trace in traces for variable in trace.averaged}
        threaded = {id(variable) for trace in traces for variable in trace.threaded}
        shares = [
            self._share(variable, state, id(variable) in averaged, id(variable) in threaded)
            for variable, state in zip(assigned, states, strict=True)
        ]
        sent = [share for share in shares if share is not None]
        totals = iter(self._collectives.all_reduce([*gradients, *sent]))
        gradients = [next(totals) for _ in gradients]
        combined = []
        for variable, state, share in zip(assigned, states, shares, strict=True):
            if share is None:
                combined.append(state)
            else:
                total = next(totals)
                is_added = id(variable) in threaded and _aggregation(variable) in ("sum", "mean")
                combined.append(_value(variable) + total if is_added else total)
        of_rows: list[Any] = []
        for values, indices, are_alike in zip(slices[::2], slices[1::2], alike, strict=True):
            if are_alike:
                of_rows += [*self._collectives.all_reduce([values]), indices]
            else:
                of_rows += map(self._collectives.all_gather, (values, indices))
        return combined, gradients, of_rows

    def _share(self, variable: Any, state: Any, is_averaged: bool, is_threaded: bool) -> Any:
        """What this replica adds to the sum; None: the replicas have the same state, as of generators of seeds."""
        if is_averaged:
            return state
        if is_threaded:
            match _aggregation(variable):
                case "sum":
                    return state - _value(variable)
                case "mean":
                    return (state - _value(variable)) / tf.cast(self._replicas, state.dtype)
                case _:
                    return state if self._replica == 0 else tf.zeros_like(state)
        if not state.dtype.is_floating:
            return None
        return state if self._replica == self._replicas - 1 else tf.zeros_like(state)  # as of the last rows


def _aggregation(variable: Any) -> Any:
    return getattr(variable, "aggregation", "sum")


def _value(variable: Any) -> Any:
    return tf.convert_to_tensor(variable._value)
