"""What the replicas of a stage have in common at the end of a batch, of which each has computed its own rows.

    replica 0: its micro-batches ─► gradients, states ─┐
    replica 1: its micro-batches ─► gradients, states ─┴─► one sum ─► the same update and the same states on both

Each micro-batch has addends of what one process would have, so each replica has, too.
"""

from collections.abc import Sequence
from typing import Any

from paceline.pipeline.chunk_trace import ChunkTrace
from paceline.spmd.placements import P, Sharded
from paceline.strategy.graph_collectives import GraphCollectives
from paceline.strategy.step_messages import StepMessages


class ReplicaSums:
    """Combines what replicas have.

    Args:
        collectives: Over the replicas of this stage.
        replica: This one.
        replicas: How many.
    """

    def __init__(self, collectives: GraphCollectives, replica: int, replicas: int) -> None:
        self._messages = StepMessages(replica, collectives)
        self._replicas = replicas

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
        placements = [placement for trace in traces for placement in trace.placements] if states else []
        added = [at for at, placement in enumerate(placements) if placement == P]
        totals = self._messages.sum([*gradients, *(states[at] for at in added)])
        combined = list(states)
        for at, total in zip(added, totals[len(gradients) :], strict=True):
            combined[at] = total
        for at, placement in enumerate(placements):
            if isinstance(placement, Sharded):
                [combined[at]] = self._messages.gather([(states[at], placement.dim)])
        of_rows: list[Any] = []
        for values, indices, are_alike in zip(slices[::2], slices[1::2], alike, strict=True):
            if are_alike:
                of_rows += [*self._messages.sum([values]), indices]
            else:
                of_rows += self._messages.gather([(values, 0), (indices, 0)])
        return combined, totals[: len(gradients)], of_rows
