"""The update of one worker's weights as loops: what several workers have as a part of their divided steps.

    train_step ─► tape.gradient ─► optimizer.apply ─► traced by itself ─► loops (`spmd/fusion.py`) in its place

Only the update is traced anew: forward and backward stay as Keras has made them. Where nothing can be gained (small
weights, no loops on this machine) the step is Keras's own.
"""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.spmd.messages import Alone
from paceline.spmd.partition import Partitioner
from paceline.spmd.placements import R
from paceline.spmd.rules.effects import has_seed
from paceline.strategy import compat
from paceline.strategy.fused_updates import fused_updates
from paceline.strategy.graph_collectives import as_written
from paceline.strategy.per_thread import PerThread

Function = Callable[..., Any]


@dataclass(frozen=True)
class _Step:
    """A step whose update becomes loops.

    Args:
        graph: Its.
        updates: What has been traced into the graph, and must live as long.
    """

    graph: Any
    updates: list[Any]


_traced = PerThread[_Step | None](None)
"""The step that this thread traces."""


def with_loops(model: Any, step_function: Function) -> Function:
    """A step of one worker whose update becomes loops, if that gains anything; else the step as it is.

    Args:
        model: Whose step.
        step_function: Of one batch.
    """
    if model.run_eagerly or model.jit_compile:
        return step_function

    updates: list[Any] = []

    def step(data: Any) -> Any:
        if tf.executing_eagerly():
            return step_function(data)
        with _traced.replaced(_Step(compat.get_default_graph(), updates)):
            return step_function(data)

    return as_written(functools.wraps(step_function)(step))


def are_traced() -> bool:
    """Whether what is built now is the step itself, and not a function or branch of a user's own in the step.

    Such a function may run where no Python can.
    """
    step = _traced.value
    return step is not None and compat.get_default_graph() is step.graph


def applied(optimizer: Any, gradients: list[Any], variables: list[Any] | None, apply: Function) -> Any:
    """Builds the update of an optimizer into the current graph, as loops if that gains anything.

    Args:
        optimizer: Keras's.
        gradients: For each variable its gradient, or None.
        variables: Keras variables; None: those with which the optimizer was built.
        apply: Keras's `apply`, of the optimizer and these two.

    Only where `are_traced()`.

    Returns:
        What `apply` returns.
    """
    step = _traced.value
    assert step is not None
    runner = fused_updates(tells=True)
    sizes = [math.prod(one.shape) for one in variables or optimizer._trainable_variables]
    if runner is None or max(sizes, default=0) < runner.least_entries:
        return apply(optimizer, gradients, variables)
    gradients = [None if one is None else _in_graph(one) for one in gradients]
    flat = tf.nest.flatten(gradients, expand_composites=True)
    given = [tensor for tensor in flat if tensor is not None]
    returned: list[Any] = []

    def update(*tensors: Any) -> None:
        left = iter(tensors)
        own = [None if tensor is None else next(left) for tensor in flat]
        returned[:] = [apply(optimizer, tf.nest.pack_sequence_as(gradients, own, expand_composites=True), variables)]

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in given]
    traced = tf.function(update, autograph=False).get_concrete_function(*specs)
    partitioner = Partitioner(Alone(), runner)
    if _is_bound_to_step(optimizer, returned, traced, partitioner.operations(traced)):
        return apply(optimizer, gradients, variables)
    nothing = tf.constant(0, tf.int64)
    partitioner.parts(traced, [R] * len(given), (nothing, nothing, nothing), given)
    step.updates.append(traced)
    return returned[0]


def _in_graph(gradient: Any) -> Any:
    """A gradient, which may be an array, as a tensor of the current graph."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.identity(tf.convert_to_tensor(gradient))


def _is_bound_to_step(optimizer: Any, returned: list[Any], traced: Any, operations: Iterable[Any]) -> bool:
    """Whether an update must be traced in the step itself.

    It draws numbers, whose seeds count the operations of the step; or it has left a tensor for the step to use.
    """
    left = [*returned, *vars(optimizer).values()]
    if any(tf.is_symbolic_tensor(one) and one.graph is traced.graph for one in tf.nest.flatten(left)):
        return True
    return any(map(has_seed, operations))
