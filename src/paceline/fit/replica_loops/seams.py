"""The patches that loops with `strategy.run` need, put in their places before the first step of such a loop."""

from collections.abc import Callable
from typing import Any

import keras

from paceline.fit import compat, metrics
from paceline.fit.replica_loops import assignments, gradient_sums, losses, means, random_rows

Replace = Callable[[Any, str, Callable[[Any], Any]], None]


def install(replace: Replace, replace_in_graphs: Replace) -> None:
    """Puts them there. Call once.

    Args:
        replace: Given an owner, a name and a wrapper, puts ``wrapper(original)`` in the original's place.
        replace_in_graphs: The same, for what users' `tf.function`s reach.
    """
    loss, trainer = compat.loss_module, compat.TensorFlowTrainer
    replace_in_graphs(keras.Loss, "__call__", losses.called)
    replace_in_graphs(loss, "scale_loss_for_distribution", losses.scaled)
    replace_in_graphs(loss, "unscale_loss_for_distribution", losses.unscaled)
    replace_in_graphs(loss, "reduce_values", losses.reduced)
    replace_in_graphs(loss, "apply_mask", losses.masked)
    replace_in_graphs(compat.BaseOptimizer, "_clip_gradients", gradient_sums.clipped)
    replace(trainer, "get_metrics_result", metrics.combined_in_model)
    replace_in_graphs(trainer, "compute_loss", means.marked_as_share)
    replace_in_graphs(trainer, "_aggregate_additional_loss", losses.aggregated)
    replace_in_graphs(keras.metrics.Mean, "update_state", means.weighed_by_rows)
    replace_in_graphs(keras.layers.BatchNormalization, "call", assignments.averaged_statistics)
    for name in ("assign", "assign_add", "assign_sub"):
        replace_in_graphs(keras.Variable, name, assignments.assigned)
    for name in ("uniform", "normal", "randint", "dropout"):
        replace_in_graphs(compat.random_module, name, getattr(random_rows, name))
    replace_in_graphs(compat.random_module, "_cast_seed", random_rows.stepped_seed)
    for name in ("truncated_normal", "categorical", "gamma", "beta", "binomial"):
        replace_in_graphs(compat.random_module, name, random_rows.other_numbers)
