"""Traces a chunk for micro-batches: the step of a whole batch (`chunk_step.py`), divided into a `ChunkTrace`."""

import contextlib
from typing import Any

import tensorflow as tf

from paceline.errors import ConfigurationError
from paceline.fit.batch_statistics import by_own_rows
from paceline.fit.one_workers_step import users_line_in_step
from paceline.fit.pipelining.chunk_step import ChunkStep, StepInputs, step_of
from paceline.fit.pipelining.chunk_trace import ChunkTrace, specs_of
from paceline.fit.pipelining.chunks import Chunk
from paceline.fit.pipelining.cut_graphs import parted
from paceline.fit.pipelining.micro_batches import MicroBatchMessages, of_all_rows
from paceline.spmd.account import Account
from paceline.spmd.alone import Alone
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
    return _Division(step, training=training, is_only_one=is_only_one).trace()


class _Division:
    """The step of a whole batch, on its way to that of a micro-batch."""

    def __init__(self, step: ChunkStep, *, training: bool, is_only_one: bool) -> None:
        self._step, self._training, self._is_only_one = step, training, is_only_one
        self._draws = 0
        """How many operations of the step draw from a state in their kernels."""

    def trace(self) -> ChunkTrace:
        step, made = self._step, dict[str, Any]()
        scalar = tf.TensorSpec([], tf.int64)
        groups = [
            *step.inputs.groups,
            [scalar] * 3,
            [tf.TensorSpec([], tf.resource) for _ in step.summed],
            specs_of(step.assigned),
        ]

        def whole(*flat: Any) -> list[Any]:
            *inputs, rows, sums, so_far, _ = parted(flat, [len(group) for group in groups])
            made.update(self._divided(StepInputs(*inputs), rows, sums, so_far))
            return []

        wrapped = tf.compat.v1.wrap_function(whole, [spec for group in groups for spec in group])
        if not self._is_only_one:
            self._draw_once(wrapped.graph, made)
        return ChunkTrace(
            wrapped=wrapped,
            is_training=self._training,
            assigned=step.assigned,
            summed=step.summed,
            looked_up=step.looked_up,
            versioned=step.versioned,
            **made,
        )

    def _divided(self, inputs: StepInputs, rows: list[Any], sums: list[Any], so_far: list[Any]) -> dict[str, Any]:
        """The tensors of a `ChunkTrace`, by name, in the current graph."""
        step, graph = self._step, tf.compat.v1.get_default_graph()
        _, first, own = rows
        several: MicroBatchMessages | None = None
        if not self._is_only_one:
            several = MicroBatchMessages(first, [*inputs.received, *inputs.given, *inputs.weights])
        partitioner = Partitioner(several or Alone())
        self._draws = sum(map(has_seed, partitioner.operations(step.traced)))
        given = StepInputs([leaf[first : first + own] for leaf in inputs.data], *inputs.groups[1:])
        flat = [tensor for group in given.groups for tensor in group]
        parts = partitioner.parts(step.traced, inputs.are_rows, tuple(rows), flat)
        handed_on, predictions, loss, received_gradients, gradients, slices, states, _ = parted(parts, step.lengths)
        made = {
            "data": inputs.data,
            "rows": rows,
            "received": inputs.received,
            "given": inputs.given,
            "sums": sums,
            "weights": inputs.weights,
            "states": inputs.states,
            "so_far": so_far,
            "handed_on": [one.placed(_ROWS) for one in handed_on],
            "predictions": [one.placed(_ROWS) for one in predictions],
            "loss": loss[0].placed(P) if loss else None,
            "received_gradients": [one.placed(_ROWS) for one in received_gradients],
            "added": _added(sums, [one.placed(P) for one in gradients]),
            "slices": [_slices(*pair) for pair in zip(slices[::2], slices[1::2], strict=True)],
            "alike": [indices.placement == R for indices in slices[1::2]],
            "new_states": [_state(one, before) for one, before in zip(states, so_far, strict=True)],
            "placements": [one.placement for one in states],
        }
        if several is None:
            return made | {"parts": [], "totals": [], "needed_by": []}
        needed_by = _needed_by(partitioner.account)
        for part, who in zip(several.parts, needed_by, strict=True):
            if part.graph is not graph:
                raise ConfigurationError(of_all_rows(f"{who}, in a loop or branch"))
        return made | {"parts": several.parts, "totals": several.totals, "needed_by": needed_by}

    def _draw_once(self, graph: Any, made: dict[str, Any]) -> None:
        """Numbers that come from a state in a kernel are drawn for all rows, once a batch, as one process draws them.

        Each micro-batch would draw the next ones.
        """
        drawing = [op for op in graph.get_operations() if has_seed(op)]
        if len(drawing) != self._draws:
            raise ConfigurationError(
                "A layer draws random numbers with tf.random in a loop or branch: each micro-batch would draw others "
                "than one process. Draw them with keras.random and a SeedGenerator. [pipeline]"
            )
        for op in drawing:
            made["parts"] += op.outputs
            made["totals"] += op.outputs
            made["needed_by"] += [users_line_in_step(op) or repr(op.name)] * len(op.outputs)


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
    """A gradient of rows: of one that every micro-batch looks up alike, an addend of the values."""
    if indices.placement == R:
        return values.placed(P), indices.placed(R)
    return values.placed(indices.placement), indices.placed(indices.placement)


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
