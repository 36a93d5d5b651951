"""What the computations and messages of a plan cost."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.plan.actions import Operation


@dataclass(frozen=True)
class ChunkCost:
    """What one chunk costs, in seconds and bytes for one micro-batch on one replica.

    Args:
        forward_seconds: F, and R.
        inputs_seconds: B.
        weights_seconds: W. Both in one call take the sum.
        update_seconds: The optimizer's update, and before it the sum of the gradients over the stage's replicas.
        input_bytes: What the chunk reads; held from F to B if it is recomputed.
        stash_bytes: Held from F (or R) to B; has the inputs in it.
        weights_stash_bytes: Held from B to W.
        parameter_bytes: The weights, once.
        slot_bytes: What the optimizer keeps beside them.
    """

    forward_seconds: float
    inputs_seconds: float
    weights_seconds: float
    update_seconds: float = 0.0
    input_bytes: int = 0
    stash_bytes: int = 0
    weights_stash_bytes: int = 0
    parameter_bytes: int = 0
    slot_bytes: int = 0

    def seconds(self, operation: Operation) -> float:
        """How long `operation` takes on one micro-batch."""
        match operation:
            case Operation.FORWARD | Operation.RECOMPUTE:
                return self.forward_seconds
            case Operation.BACKWARD_INPUTS:
                return self.inputs_seconds
            case Operation.BACKWARD_WEIGHTS:
                return self.weights_seconds
            case Operation.BACKWARD:
                return self.inputs_seconds + self.weights_seconds


@dataclass(frozen=True)
class Link:
    """The way from one stage to another; each direction of each pair of stages has its own."""

    latency_seconds: float = 0.0
    bytes_per_second: float = math.inf

    def seconds(self, num_bytes: float) -> float:
        """How long a message of `num_bytes` is under way."""
        return self.latency_seconds + num_bytes / self.bytes_per_second


@dataclass(frozen=True)
class GradientSum:
    """Before the update, `stages` add up the gradients of weights that all of them have: `seconds` from when the last
    one is there, and all of them wait for the end.
    """

    stages: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Costs:
    """What a whole pipeline costs.

    Args:
        chunks: Of each chunk.
        edge_bytes: Of one micro-batch's message, by (source, target) of chunks; the gradients have as many.
        link: Between any two stages.
        gradient_sums: Of synchronous schedules; the stages make them in this order.
    """

    chunks: tuple[ChunkCost, ...]
    edge_bytes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    link: Link = Link()
    gradient_sums: tuple[GradientSum, ...] = ()
