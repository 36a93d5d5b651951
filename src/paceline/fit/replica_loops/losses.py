"""Global denominators of losses, so that the gradients of the ranks *add up* to those of one worker.

A mean loss over the rows of rank r is S_r / n_r. One worker's is (S_1 + … + S_N) / (n_1 + … + n_N). Scaling rank r's
by n_r / n before the tape turns its part into S_r / n, and the sum over ranks is exact, also when ranks have different
numbers of rows or none. Keras 3 scales by 1 / N instead (right only for equal slices), in one function that all its
losses, regularisers and `add_loss` go through, and undoes it in another one for the loss that it reports.

Where the denominator is not the number of rows (masks, `mean_with_sample_weight`) it is summed over ranks here.
Losses with reduction "sum" need nothing: sums add up. A loss function that returns one number is taken for a mean over
this rank's rows.

A loss may call others (`0.5 * bce(y, p) + 0.5 * mse(y, p)`, or one beside a mean of its own): only the outermost is
scaled. Those inside give means over this rank's rows, as the user's own numbers beside them are.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from paceline.fit.compat import loss_module
from paceline.fit.replica import current_batch_replica, current_replica
from paceline.fit.replica_loops.nested_calls import nested_calls
from paceline.fit.replica_loops.shares import is_share, mark_as_own, mark_as_share, share_of, terms
from paceline.strategy.replica_context import PacelineReplicaContext

Function = Callable[..., Any]


def called(keras_call: Function) -> Function:
    """Keras's `Loss.__call__`, which knows in a Paceline step whether it is the outermost."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if current_replica() is None:
            return keras_call(self, *args, **kwargs)
        nested_calls.gave_means.append(False)
        try:
            return keras_call(self, *args, **kwargs)
        finally:
            nested_calls.gave_means.pop()

    return call


@contextlib.contextmanager
def within_a_metric() -> Iterator[None]:
    """While this lasts, losses are means over this rank's rows: metrics put the ranks' numbers together themselves."""
    nested_calls.metrics += 1
    try:
        yield
    finally:
        nested_calls.metrics -= 1


def scaled(keras_scale: Function) -> Function:
    """Keras's `scale_loss_for_distribution` with the factor n_local / n_global in a Paceline step."""

    def scale_loss_for_distribution(value: Any) -> Any:
        if nested_calls.inside:
            nested_calls.give_mean()
            return value
        replica = current_batch_replica()
        if replica is None:
            return keras_scale(value)
        replica.rows.note_share()
        value = tf.convert_to_tensor(value)
        # No NaN: a mean over no rows, as a user's loss may take it, is not a number, and counts nothing.
        return mark_as_share(tf.math.multiply_no_nan(value, replica.rows.share(value.dtype)))

    return scale_loss_for_distribution


def unscaled(keras_unscale: Function) -> Function:
    """Keras's `unscale_loss_for_distribution` with the factor n_global / n_local in a Paceline step."""

    def unscale_loss_for_distribution(value: Any) -> Any:
        replica = current_batch_replica()
        if replica is None:
            return keras_unscale(value)
        value = tf.convert_to_tensor(value)
        if not any(term.is_share for term in terms(value, replica.rows)):
            return value  # no Keras loss took part: a user's `compute_loss` has averaged this rank's rows
        local, total = replica.rows.counts(tf.float64)
        return mark_as_own(share_of(value, replica.rows) * tf.cast(tf.math.divide_no_nan(total, local), value.dtype))

    return unscale_loss_for_distribution


def reduced(keras_reduce: Function) -> Function:
    """Keras's `reduce_values` with the sum of all ranks' weights as denominator of `mean_with_sample_weight`."""

    def reduce_values(values: Any, sample_weight: Any = None, reduction: str | None = "sum_over_batch_size") -> Any:
        replica = current_replica()
        if tuple(values.shape) == (0,) and reduction not in (None, "none"):
            # Keras leaves values alone whose shape says that they are empty; a rank without rows contributes zero.
            return _added_up(tf.reduce_sum(values), replica)
        if replica is None:
            return keras_reduce(values, sample_weight, reduction)
        is_of_mean = any(nested_calls.gave_means[-1:])
        if values.shape.rank == 0 and is_of_mean:  # Keras leaves one number alone: a mean inside it
            return loss_module.scale_loss_for_distribution(values)
        if reduction == "mean_with_sample_weight" and sample_weight is not None and values.shape.rank != 0:
            total = _sum_over_ranks(replica, tf.reduce_sum(tf.cast(sample_weight, values.dtype)))
            return _added_up(tf.math.divide_no_nan(tf.reduce_sum(values), total), replica)
        result = keras_reduce(values, sample_weight, reduction)
        return _added_up(result, replica) if reduction == "sum" else result

    return reduce_values


def _added_up(value: Any, replica: PacelineReplicaContext | None) -> Any:
    """A loss that is a share without scaling: the ranks' add up. Inside another loss: what that will make it of."""
    if replica is None or not nested_calls.inside:
        if replica is not None:
            replica.rows.note_share()
        return mark_as_share(value)
    nested_calls.give_mean()
    if not replica.rows.known:
        return value * tf.cast(replica.num_replicas_in_sync, value.dtype)
    return tf.math.divide_no_nan(value, replica.rows.share(value.dtype))


def aggregated(keras_aggregate: Function) -> Function:
    """Keras's `Trainer._aggregate_additional_loss`, which adds up what `add_loss` has got, whatever its shape.

    A value for each row (shape (rows, …)) is a share when it is added up. One number may be a share (a Keras loss), a
    sum over rows, or a mean over this rank's rows (`shares.py`); eagerly, where nothing tells, it is taken for a mean.
    Collective for other shapes than one number's.
    """

    def _aggregate_additional_loss(self: Any, loss: Any) -> Any:
        replica = current_batch_replica()
        if replica is None or not tf.is_tensor(loss):
            return keras_aggregate(self, loss)
        if not loss.dtype.is_floating:
            loss = tf.cast(loss, keras.config.floatx())
        if is_share(loss):
            return mark_as_share(tf.reduce_sum(loss))
        if loss.shape.rank != 0:
            share = replica.rows.share(loss.dtype)
            weight = tf.where(_is_of_rows(loss, replica), tf.ones_like(share), share)
            return mark_as_share(tf.math.multiply_no_nan(tf.reduce_sum(loss), weight))
        return share_of(loss, replica.rows) if tf.is_symbolic_tensor(loss) else keras_aggregate(self, loss)

    return _aggregate_additional_loss


def _is_of_rows(loss: Any, replica: PacelineReplicaContext) -> Any:
    """bool scalar: whether the first axis of `loss` is that of the rows, or, in batches of any size, a multiple of it.

    On all ranks: where they have different numbers of rows, a vector that is as long on each of them is none of rows.
    """
    local = replica.rows.local
    known = None if loss.shape.rank is None else loss.shape[0]
    if known is None:
        length = tf.reduce_prod(tf.shape(loss)[:1])
        is_here = tf.equal(length % tf.maximum(local, 1), 0)
    else:  # a length that is known when the step is built is no number of rows if that is not
        is_here = tf.constant(known == tf.get_static_value(local))
    return replica.rows.everywhere(is_here)


def masked(keras_apply_mask: Function) -> Function:
    """Keras's `apply_mask` with the mask's share of valid entries taken over all ranks."""
    adds_epsilon = "epsilon" in keras_apply_mask.__code__.co_names  # to the valid entries, as Keras 3.10 does

    def apply_mask(sample_weight: Any, mask: Any, dtype: Any, reduction: str | None) -> Any:
        replica = current_replica()
        if replica is None or mask is None or reduction not in ("mean", "sum_over_batch_size"):
            return keras_apply_mask(sample_weight, mask, dtype, reduction)
        valid = tf.cast(mask, dtype)
        counts = tf.stack([tf.cast(tf.size(valid), dtype), tf.reduce_sum(valid)])
        total, total_valid = tf.unstack(_sum_over_ranks(replica, counts))
        epsilon = keras.config.epsilon() if adds_epsilon else 0.0
        share = tf.math.divide_no_nan(total, total_valid + epsilon)
        weight = tf.where(tf.cast(mask, tf.bool), share, tf.zeros([], valid.dtype))
        if sample_weight is None:
            return weight
        sample_weight = tf.cast(sample_weight, dtype)
        weight, sample_weight = loss_module.squeeze_or_expand_to_same_rank(weight, sample_weight)
        return sample_weight * weight

    return apply_mask


def _sum_over_ranks(replica: PacelineReplicaContext, value: Any) -> Any:
    """A constant of the step: no gradient flows through a denominator."""
    [total] = replica.collectives.all_reduce([tf.stop_gradient(value)])
    return total
