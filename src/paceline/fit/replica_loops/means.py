"""Means of one number per step, usually a loss: the number of a rank is weighted by its share of the rows.

One worker that notes the loss of each step ends with the mean over the steps. Here each rank notes a number of its own
rows, so that number is given the weight n_local / n_global: the sums over ranks then hold one step's number once. A
loss from Keras's `compute_loss` already is this rank's share of the step's loss, and is not weighed a second time.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.fit.replica import current_batch_replica
from paceline.fit.replica_loops.shares import as_tensor, mark_as_share, share_of, terms
from paceline.strategy.replica_context import StepRows

Function = Callable[..., Any]


def marked_as_share(keras_compute_loss: Function) -> Function:
    """Keras's `Trainer.compute_loss`, whose result is a share of the global loss, and remembered to be.

    It may be the sum of others: a loss class with a `__call__` of its own is not scaled by Keras.
    """

    def compute_loss(self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = keras_compute_loss(self, *args, **kwargs)
        replica = current_batch_replica()
        if replica is not None and _is_scalar(loss):
            loss = share_of(loss, replica.rows)
        return mark_as_share(loss) if replica is not None else loss

    return compute_loss


def weighed_by_rows(keras_update: Function) -> Function:
    """Keras's `Mean.update_state`, which gives a scalar without a weight the weight of this rank's rows."""

    def update_state(self: Any, values: Any, sample_weight: Any = None) -> Any:
        replica = current_batch_replica()
        values = values if replica is None else as_tensor(values)
        if replica is None or not _is_scalar(values):
            return keras_update(self, values, sample_weight)
        rows = replica.rows
        local, _ = rows.counts(self.dtype)
        share = rows.share(self.dtype)
        if any(term.is_share for term in terms(values, rows)):
            values = tf.math.divide_no_nan(tf.cast(share_of(values, rows), self.dtype), share)
        # A mean over no rows is not a number; it must not reach the sum, not even times zero.
        values = tf.where(local > 0, tf.cast(values, self.dtype), tf.zeros([], self.dtype))
        return keras_update(self, values, _weight(sample_weight, rows, share))

    return update_state


def _weight(given: Any, rows: StepRows, share: Any) -> Any:
    """What a number that this rank notes counts: all ranks together note that of a step once."""
    if given is None:
        return share
    if tf.is_tensor(given) or given == tf.get_static_value(rows.local):  # this rank's rows, which add up
        return given
    return given * share


def _is_scalar(values: Any) -> bool:
    return bool(tf.is_tensor(values) and values.shape.rank == 0)
