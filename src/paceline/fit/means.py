"""Means of one number a step (a loss, mostly): a rank's number counts as much as its share of the rows.

One worker that notes the loss of each step ends with the mean over the steps. Here each rank notes a number of its own
rows, so that number is given the weight n_local / n_global: the sums over ranks then hold one step's number once. A
loss from Keras's `compute_loss` already is this rank's share of the step's loss, and is not weighed a second time.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.fit.replica import current_batch_replica
from paceline.fit.shares import is_share, mark_as_share

Function = Callable[..., Any]


def marked_as_share(keras_compute_loss: Function) -> Function:
    """Keras's `Trainer.compute_loss`, whose result is remembered to be a share of the global loss."""

    def compute_loss(self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = keras_compute_loss(self, *args, **kwargs)
        replica = current_batch_replica()
        return mark_as_share(loss) if replica is not None and replica.rows.loss_is_share else loss

    return compute_loss


def weighed_by_rows(keras_update: Function) -> Function:
    """Keras's `Mean.update_state`, which gives a scalar without a weight the weight of this rank's rows."""

    def update_state(self: Any, values: Any, sample_weight: Any = None) -> Any:
        replica = current_batch_replica()
        if replica is None or sample_weight is not None or not _is_scalar(values):
            return keras_update(self, values, sample_weight)
        local, _ = replica.rows.counts(self.dtype)
        share = replica.rows.share(self.dtype)
        if is_share(values):
            values = tf.math.divide_no_nan(tf.cast(values, self.dtype), share)
        # A mean over no rows is not a number; it must not reach the sum, not even times zero.
        values = tf.where(local > 0, tf.cast(values, self.dtype), tf.zeros([], self.dtype))
        return keras_update(self, values, share)

    return update_state


def _is_scalar(values: Any) -> bool:
    return bool(tf.is_tensor(values) and values.shape.rank == 0)
