"""Traces a chunk for micro-batches: the step of a whole batch (`chunk_step.py`), divided into a `ChunkTrace`."""

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from paceline.errors import ConfigurationError
from paceline.fit.batch_statistics import by_own_rows
from paceline.fit.one_workers_step import users_line_in_step
from paceline.pipeline.chunk_step import ChunkStep, StepInputs, placement_of, step_of
from paceline.pipeline.chunk_trace import ChunkTrace, is_floating, specs_of
from paceline.pipeline.chunks import Chunk
from paceline.pipeline.cut_graphs import parted
from paceline.pipeline.layer_states import refuse_effects
from paceline.pipeline.micro_batches import MicroBatchMessages, OfData, refuse_all_rows
from paceline.spmd.account import Account
from paceline.spmd.messages import Alone
from paceline.spmd.partition import Part, Partitioner
from paceline.spmd.placements import P, Partial, R, Replicated, Sharded
from paceline.spmd.rules.effects import has_seed

_ROWS = Sharded(0)


def trace(
    model: Any, chunk: Chunk, specs: Any, *, training: bool, losses: bool = True, versioned: bool = False
) -> ChunkTrace:
    """Builds the graph; see `step_of`.

    Raises:
        ConfigurationError: the chunk does what a pipeline cannot do.
    """
    strategy = model.distribute_strategy
    is_only_one = strategy.micro_batches * strategy.replicas == 1
    with contextlib.nullcontext() if is_only_one else by_own_rows():
        step = step_of(model, chunk, specs, training=training, losses=losses, versioned=versioned)
    return _Division(chunk, step, training=training, is_only_one=is_only_one).trace()


class _Division:
    """The step of a whole batch, on its way to that of a micro-batch."""

    def __init__(self, chunk: Chunk, step: ChunkStep, *, training: bool, is_only_one: bool) -> None:
        self._chunk, self._step, self._training, self._is_only_one = chunk, step, training, is_only_one

    def trace(self) -> ChunkTrace:
        step = self._step
        scalar = tf.TensorSpec([], tf.int64)
        groups = [
            *step.inputs.groups,
            [scalar] * 3,
            [tf.TensorSpec([], tf.resource) for _ in step.summed],
            specs_of(step.assigned),
        ]
        made = list[partial[ChunkTrace]]()

        def whole(*flat: Any) -> list[Any]:
            *inputs, rows, sums, so_far, _ = parted(flat, [len(group) for group in groups])
            made.append(self._divided(StepInputs(*inputs), rows, sums, so_far))
            return []

        wrapped = tf.compat.v1.wrap_function(whole, [spec for group in groups for spec in group])
        [all_but_the_function] = made
        return all_but_the_function(wrapped=wrapped)

    def _divided(
        self, inputs: StepInputs, rows: list[Any], sums: list[Any], so_far: list[Any]
    ) -> "partial[ChunkTrace]":
        """Builds the step in the current graph, of which there is no function yet."""
        step = self._step
        _, first, own = rows
        weights = [one._value for one in self._chunk.variables if one.trainable]
        of_data = OfData([*inputs.received, *inputs.given, *inputs.weights], weights)
        several = None if self._is_only_one else MicroBatchMessages(first, of_data)
        partitioner = Partitioner(several or Alone())
        operations = list(partitioner.operations(step.traced))
        refuse_effects(operations, is_only_one=self._is_only_one)
        given = StepInputs([leaf[first : first + own] for leaf in inputs.data], *inputs.groups[1:])
        flat = [tensor for group in given.groups for tensor in group]
        parts = partitioner.parts(step.traced, step.inputs.placements, tuple(rows), flat)
        handed_on, predictions, loss, received_gradients, gradients, slices, states, _ = parted(parts, step.lengths)
        differentiated = [one for one in self._chunk.received if is_floating(one)] if self._training else []
        looked_up = list(zip(slices[::2], slices[1::2], strict=True))
        made = partial(
            ChunkTrace,
            is_training=self._training,
            data=inputs.data,
            rows=rows,
            received=inputs.received,
            given=inputs.given,
            sums=sums,
            weights=inputs.weights,
            states=inputs.states,
            so_far=so_far,
            handed_on=[
                one.placed(placement_of(tensor)) for one, tensor in zip(handed_on, self._chunk.handed_on, strict=True)
            ],
            predictions=[one.placed(_ROWS) for one in predictions],
            loss=loss[0].placed(P) if loss else None,
            received_gradients=[
                one.placed(P if placement_of(tensor) == R else _ROWS)
                for one, tensor in zip(received_gradients, differentiated, strict=True)
            ],
            added=_added(sums, [one.placed(P) for one in gradients]),
            slices=[_slices(*pair) for pair in looked_up],
            new_states=[_state(one, before) for one, before in zip(states, so_far, strict=True)],
            placements=[one.placement for one in states],
            assigned=step.assigned,
            summed=step.summed,
            looked_up=step.looked_up,
            alike=[_are_alike(*pair) for pair in looked_up],
            versioned=step.versioned,
        )
        # The last: all of the above notes what micro-batches would exchange.
        fed = self._fed(several, of_data, _needed_by(partitioner.account), sum(map(has_seed, operations)))
        return partial(made, parts=fed.parts, totals=fed.totals, refused=fed.refused)

    def _fed(self, several: MicroBatchMessages | None, of_data: OfData, needed_by: list[str], num_draws: int) -> "_Fed":
        """What is computed of all rows, once a batch, and fed to each micro-batch.

        Args:
            several: Notes what micro-batches would exchange, if there are several.
            of_data: Knows what follows from the data.
            needed_by: For each tensor that `several` has noted, who needs it.
            num_draws: How many operations of the step draw from a state in their kernel.
        """
        graph = tf.compat.v1.get_default_graph()
        parts, totals, refused = list[Any](), list[Any](), list[str]()
        if several is not None:
            parts, totals = several.parts, several.totals
            for tensor, who in zip(parts, needed_by, strict=True):
                where = who if tensor.graph is graph else f"{who}, in a loop or branch"
                refused.append("" if of_data.has(tensor) else where)
        # One process draws for all rows, once a batch: each micro-batch, and each recomputation, would draw anew.
        drawing = [op for op in graph.get_operations() if has_seed(op)]
        if several is not None and len(drawing) != num_draws:
            raise ConfigurationError(
                "A layer draws random numbers with tf.random in a loop or branch: each micro-batch would draw others "
                "than one process. Draw them with keras.random and a SeedGenerator. [pipeline]"
            )
        for op in drawing:
            if several is not None or all(map(of_data.has, op.outputs)):
                parts, totals = [*parts, *op.outputs], [*totals, *op.outputs]
                who = users_line_in_step(op) or repr(op.name)
                refused += ["" if of_data.has(output) else who for output in op.outputs]
        return _Fed(parts, totals, refused)


@dataclass(frozen=True)
class _Fed:
    """See `ChunkTrace`."""

    parts: list[Any]
    totals: list[Any]
    refused: list[str]


def _state(part: Part, before: Any) -> Any:
    """What is left of an assigned value, after this micro-batch and those before."""
    match part.placement:
        case Partial():
            return before + part.placed(P)
        case Replicated():
            return part.placed(R)
        case _:
            return part.placed(part.placement)


def _slices(values: Part, indices: Part) -> tuple[Any, Any]:
    """A gradient of rows: of one that every micro-batch looks up alike, an addend of the values.

    Raises:
        ConfigurationError: what is looked up is computed from all rows.
    """
    if isinstance(values.placement, Sharded):
        return values.placed(values.placement), indices.placed(values.placement)
    if isinstance(indices.placement, Sharded):
        return values.placed(indices.placement), indices.placed(indices.placement)
    if indices.placement == P:
        refuse_all_rows("rows of a table that are looked up by a sum over rows")
    return values.placed(P), indices.placed(R)


def _are_alike(values: Part, indices: Part) -> bool:
    return not isinstance(values.placement, Sharded) and not isinstance(indices.placement, Sharded)


def _needed_by(account: Account) -> list[str]:
    """For each tensor that would be exchanged, the line or operation that needs it."""
    found = []
    for message in account.messages:
        for sent in message.tensors:
            lines = [line for op in sent.operations if (line := users_line_in_step(op))]
            names = [repr(op.name) for op in sent.operations]
            if message.kind != "call":
                found.append(next(iter([*lines, *names]), "an output"))
    return found


def _added(sums: list[Any], gradients: list[Any]) -> Any:
    """A tensor that is there when each of the gradients has been added to its sum; None without any."""
    if not sums:
        return None
    additions = [
        tf.raw_ops.AssignAddVariableOp(resource=total, value=gradient)
        for total, gradient in zip(sums, gradients, strict=True)
    ]
    nothing = tf.zeros([], tf.int32)
    with tf.control_dependencies(additions):
        return tf.identity(nothing)
