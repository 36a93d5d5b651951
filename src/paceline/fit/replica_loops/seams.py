"""The replacements that loops with `strategy.run` need; they are put in their places before the first such step."""

from collections.abc import Callable
from typing import Any

import keras

from paceline.fit import compat, metrics
from paceline.fit.replica_loops import assignments, gradient_sums, losses, means, random_rows
from paceline.strategy.seams import Seam

_BY_ROWS = "replicas with more rows count more"
_OWN_ROWS = "each replica draws one worker's numbers for its rows"


def rows() -> list[Seam]:
    """The replacements."""
    loss, trainer, random = compat.loss_module, compat.TensorFlowTrainer, compat.random_module
    table: list[tuple[Any, Any, Callable[[Any], Any], str]] = [
        (keras.Loss, "__call__", losses.called, "a loss within a loss is not weighed twice"),
        (loss, "scale_loss_for_distribution", losses.scaled, _BY_ROWS),
        (loss, "unscale_loss_for_distribution", losses.unscaled, _BY_ROWS),
        (loss, "reduce_values", losses.reduced, "weights are added up over replicas"),
        (loss, "apply_mask", losses.masked, "masks are counted over replicas"),
        (compat.BaseOptimizer, "_clip_gradients", gradient_sums.clipped, "accumulated gradients are summed first"),
        (trainer, "get_metrics_result", metrics.combined_in_model, "metrics of all replicas"),
        (trainer, "compute_loss", means.marked_as_share, _BY_ROWS),
        (trainer, "_aggregate_additional_loss", losses.aggregated, _BY_ROWS),
        (keras.metrics.Mean, "update_state", means.weighed_by_rows, _BY_ROWS),
        (keras.layers.BatchNormalization, "call", assignments.averaged_statistics, "moving statistics are averaged"),
        (
            keras.Variable,
            ("assign", "assign_add", "assign_sub"),
            assignments.assigned,
            "what `add_weight(aggregation=...)` says",
        ),
        *(
            (random, name, getattr(random_rows, name), _OWN_ROWS)
            for name in ("uniform", "normal", "randint", "dropout")
        ),
        (random, "_cast_seed", random_rows.stepped_seed, "other seeds for each replica"),
        (
            random,
            ("truncated_normal", "categorical", "gamma", "beta", "binomial"),
            random_rows.other_numbers,
            "other seeds for each replica",
        ),
    ]
    return [Seam(owner, name, wrapper, why, in_graphs=True) for owner, name, wrapper, why in table]
