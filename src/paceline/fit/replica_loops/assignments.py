"""Weights that a layer assigns from its data in a loop with `strategy.run`: a count, a running mean, a codebook.

Each rank has its own rows only, so each would assign something else. `add_weight(aggregation=...)` says what all ranks
assign, or add, instead:

    "mean"                   the mean over ranks, weighed by rows
    "sum"                    the sum over ranks
    "only_first_replica"     the chief's
    "none", Keras's default  each its own

BatchNormalization's moving statistics are averaged before the step ends (`strategy/replica_context.py`).

A Python number is the same on all ranks and taken as it is, as for `tf.Variable`s (`strategy/variables.py`).
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.fit.replica import current_replica
from paceline.fit.replica_loops.lineage import Mark, mark
from paceline.fit.replica_loops.nested_calls import nested_calls
from paceline.strategy.replica_context import PacelineReplicaContext

Function = Callable[..., Any]

_AGGREGATION = "_paceline_aggregation"


def note_aggregation(variable: Any) -> None:
    """Remembers the `aggregation` that a layer's weight was given.

    Optimizers and metrics give their variables one, too; they make them by other means and are seen to elsewhere.
    """
    if not variable.trainable and variable.aggregation != "none":
        setattr(variable, _AGGREGATION, variable.aggregation)


def assigned(keras_assign: Function) -> Function:
    """Keras's `Variable.assign`, `assign_add` or `assign_sub` of what all ranks assign. Collective if they differ."""

    def assign(self: Any, value: Any) -> Any:
        replica = current_replica()
        if replica is None or nested_calls.is_combined:
            return keras_assign(self, value)
        if (aggregation := getattr(self, _AGGREGATION, None)) and tf.is_tensor(value):
            value = _of_all_ranks(tf.cast(value, self.dtype), aggregation, replica)
        nested_calls.is_combined = True  # Keras's `assign_add` calls `assign`
        try:
            return keras_assign(self, value)
        finally:
            nested_calls.is_combined = False

    return assign


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


def averaged_statistics(keras_call: Function) -> Function:
    """Keras's `BatchNormalization.call`, whose moving statistics are averaged over ranks at the step's end.

    With `synchronized=True` every rank moves them by the whole batch, and they are equal already.
    """

    def call(self: Any, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        outputs = keras_call(self, inputs, training=training, mask=mask)
        replica = current_replica()
        if replica is not None and training:
            mark(outputs, Mark.OF_ROWS)
        if replica is not None and training and self.trainable and not self.synchronized:
            replica.rows.statistics.note(self.non_trainable_variables)
        return outputs

    return call
