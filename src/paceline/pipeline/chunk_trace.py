"""What the graph of a chunk is made of: one graph of forward, losses and gradients, for one micro-batch of any rows.

                       data (x, y, sample_weight)   rows   states
                                 │                   │       │
    received from earlier ───► layers ───► handed on to later chunks, losses, new states
                                 │
    gradients of received ◄─── gradients of what was handed on
                                 └─────► gradients of weights, each added to its sum as soon as it is there

Nothing else in it has side effects: what layers and metrics assign goes in as `states` and comes out.
`chunk_tracing.py` builds it, `chunk_functions.py` cuts it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.spmd.placements import Placement


@dataclass(frozen=True)
class ChunkTrace:
    """Tensors of one graph, and what they are.

    Args:
        wrapped: The graph as a function, which can be pruned.
        is_training: Whether it has gradients.
        data: The leaves of (x, y, sample_weight), of the whole batch: the graph takes the micro-batch's rows.
        rows: How many rows the batch has, which of these is the micro-batch's first one, and how many it has (int64).
        received: As the chunk's.
        given: Gradients of `handed_on`, of those that are floating, in order.
        sums: For `summed`, the handles of the variables to which gradients are added.
        weights: Values of `versioned`.
        states: Values of `assigned` when the batch begins.
        so_far: For each of `assigned`, the sum of the addends of the micro-batches before.
        handed_on: As the chunk's.
        predictions: The model's outputs; of the last chunk only.
        loss: The micro-batch's addend of the losses of this chunk, unscaled; None without any.
        received_gradients: Of those of `received` that are floating.
        added: Is there when all of `sums` have been added to; None without any.
        slices: (values, indices) of the gradients of `looked_up`.
        new_states: What the micro-batch has of the new values of `assigned`, as `placements` says; of addends their
            sum with `so_far`.
        placements: Of each of `new_states`: the new value, which every micro-batch computes; an addend of it; or rows.
        parts: What the micro-batch has of each of `totals`.
        totals: What all micro-batches have together: fed. It must follow from the data alone.
        refused: For each of `totals` that does not follow from the data, who needs it, in words; "" for the others.
        assigned: Keras variables that layers or metrics assign.
        summed: Trained Keras variables with dense gradients.
        looked_up: Those with gradients of rows.
        alike: Of each of these whether every micro-batch looks up the same, as positions: one process has one gradient.
        versioned: Trained Keras variables whose values are given, as batches under way compute with several versions.
            Others are read where the graph needs them.
    """

    wrapped: Any
    is_training: bool
    data: list[Any]
    rows: list[Any]
    received: list[Any]
    given: list[Any]
    sums: list[Any]
    weights: list[Any]
    states: list[Any]
    so_far: list[Any]
    handed_on: list[Any]
    predictions: list[Any]
    loss: Any
    received_gradients: list[Any]
    added: Any
    slices: list[tuple[Any, Any]]
    new_states: list[Any]
    placements: list[Placement]
    parts: list[Any]
    totals: list[Any]
    refused: list[str]
    assigned: list[Any]
    summed: list[Any]
    looked_up: list[Any]
    alike: list[bool]
    versioned: list[Any]


def is_floating(tensor: Any) -> bool:
    """Whether gradients of a `KerasTensor` or tensor are sent."""
    return bool(tf.as_dtype(tensor.dtype).is_floating)


def specs_of(variables: Sequence[Any]) -> list[Any]:
    """The `tf.TensorSpec`s of the values of Keras variables."""
    return [tf.TensorSpec(one.shape, one._value.dtype) for one in variables]
