"""Weights that a layer assigns from its data, such as a count, a running mean or a codebook.

Each rank has its own rows only, so each would assign something else. `add_weight(aggregation=...)` says what all ranks
assign, or add, instead:

    "mean"                   the mean over ranks, weighed by rows
    "sum"                    the sum over ranks
    "only_first_replica"     the chief's
    "none", Keras's default  each its own: at the end of a `fit` the chief is told which weights differ

BatchNormalization's moving statistics are averaged before the step ends (`strategy/replica_context.py`).

A Python number is the same on all ranks and taken as it is, as for `tf.Variable`s (`strategy/variables.py`).
"""

import logging
import threading
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.fit.compat import trained_variables
from paceline.fit.lineage import OF_ROWS
from paceline.fit.replica import current_replica
from paceline.strategy.base import SynchronousStrategy
from paceline.strategy.replica_context import PacelineReplicaContext

_LOGGER = logging.getLogger("paceline")

Function = Callable[..., Any]

_AGGREGATION = "_paceline_aggregation"
_ASSIGNED = "_paceline_is_assigned_in_steps"

_thread = threading.local()


def told_how_to_combine(keras_add_weight: Function) -> Function:
    """Keras's `Layer.add_weight`, which remembers the `aggregation` that a weight was given.

    Optimizers and metrics give their variables one, too; they make them by other means and are seen to elsewhere.
    """

    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        variable = keras_add_weight(self, *args, **kwargs)
        if not variable.trainable and variable.aggregation != "none":
            setattr(variable, _AGGREGATION, variable.aggregation)
        return variable

    return add_weight


def assigned(keras_assign: Function) -> Function:
    """Keras's `Variable.assign`, `assign_add` or `assign_sub` of what all ranks assign. Collective if they differ."""

    def assign(self: Any, value: Any) -> Any:
        replica = current_replica()
        if replica is None or getattr(_thread, "is_combined", False):
            return keras_assign(self, value)
        setattr(self, _ASSIGNED, True)
        if (aggregation := getattr(self, _AGGREGATION, None)) and tf.is_tensor(value):
            value = _of_all_ranks(tf.cast(value, self.dtype), aggregation, replica)
        _thread.is_combined = True  # Keras's `assign_add` calls `assign`
        try:
            return keras_assign(self, value)
        finally:
            _thread.is_combined = False

    return assign


def note_branch(optimizer: Any, variables: Iterable[Any] | None) -> None:
    """A branch of a step's graph trains these, or all that `optimizer` was built for. Ranks may part there."""
    for variable in trained_variables(optimizer) if variables is None else variables:
        setattr(variable, _ASSIGNED, True)


def _of_all_ranks(value: Any, aggregation: str, replica: PacelineReplicaContext) -> Any:
    """What all ranks assign together, where this one would assign `value`."""
    rows = replica.rows
    match aggregation:
        case "mean" if not value.dtype.is_floating:
            raise ValueError(
                f'a weight of dtype {value.dtype.name} has aggregation="mean", which needs a floating-point '
                'weight. Change its dtype, or use aggregation="sum" [aggregation]'
            )
        case "mean" if rows.known:
            # No NaN: a mean over no rows is not a number, and counts nothing.
            value = tf.math.multiply_no_nan(value, rows.share(value.dtype))
        case "mean":
            value = value / tf.cast(replica.num_replicas_in_sync, value.dtype)
        case "only_first_replica" if replica.rank != 0:
            value = tf.zeros_like(value)
    [total] = replica.collectives.all_reduce([tf.stop_gradient(value)])
    return total


def tell_of_differences(model: Any, strategy: SynchronousStrategy) -> None:
    """The chief says which weights assigned in steps have another value on another rank. Collective."""
    weights = model.weights
    if strategy.group.size == 1 or not weights:
        return
    digests = strategy.group.all_gather(np.array([_digest(weight) for weight in weights], np.int64))
    if strategy.group.rank > 0:
        return
    different = differing(weights, digests)
    if names := [weight.path for weight in different if weight.trainable]:
        _LOGGER.warning(
            "trained weights differ between ranks: %s. Either a train_step updates these weights in a branch "
            "(tf.cond) whose condition differs between ranks, such as the loss of this rank; or it assigns "
            "values computed from the rows of this rank. Use a condition that is equal on all ranks: the result "
            "of a metric, optimizer.iterations, or the norm of the gradients.",
            ", ".join(names),
        )
    if names := [weight.path for weight in different if not weight.trainable]:
        _LOGGER.warning(
            "weights that a layer assigns differ between ranks: %s. Each rank assigned a value computed from "
            "its own rows, and a saved model contains the value of one rank. Set add_weight(..., "
            'aggregation="mean") or aggregation="sum" to combine the values over ranks, or assign a value that '
            'is equal on all ranks (tf.distribute.get_replica_context().all_reduce("sum", x)).',
            ", ".join(names),
        )


def differing(weights: list[Any], digests: list[Any]) -> list[Any]:
    """The `weights` whose digests are not alike on all ranks; pure.

    Args:
        weights: The chief's.
        digests: Each rank's, one for each weight. A rank that has another number of them says nothing.
    """
    chiefs, *others = digests
    comparable = [theirs for theirs in others if len(theirs) == len(chiefs)]
    return [
        weight for index, weight in enumerate(weights) if any(theirs[index] != chiefs[index] for theirs in comparable)
    ]


def _digest(weight: Any) -> int:
    """Of the value of a weight that steps assign; 0 of any other, which may be large and is alike on all ranks."""
    return zlib.crc32(np.asarray(weight.numpy()).tobytes()) if getattr(weight, _ASSIGNED, False) else 0


def averaged_statistics(keras_call: Function) -> Function:
    """Keras's `BatchNormalization.call`, whose moving statistics are averaged over ranks at the step's end.

    With `synchronized=True` every rank moves them by the whole batch, and they are equal already.
    """

    def call(self: Any, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        outputs = keras_call(self, inputs, training=training, mask=mask)
        replica = current_replica()
        if replica is not None and training:
            setattr(outputs, OF_ROWS, True)
        if replica is not None and training and self.trainable and not self.synchronized:
            replica.rows.statistics.note(self.non_trainable_variables)
        return outputs

    return call
