"""The replacements in Keras for pipelines, in processes that make a `PipelineStrategy`."""

import keras

from paceline.fit import compat
from paceline.pipeline import deferred_variables, stage_updates
from paceline.strategy.seams import Seam


def rows() -> list[Seam]:
    """The replacements."""
    variable, layer, base = keras.Variable, keras.Layer, compat.BaseOptimizer
    elsewhere = "a stage has its own weights only"
    return [
        Seam(variable, "_initialize_with_initializer", deferred_variables.initialized, elsewhere),
        Seam(variable, "_direct_assign", deferred_variables.assigned, elsewhere),
        Seam(layer, "get_weights", deferred_variables.got, elsewhere),
        Seam(layer, "set_weights", deferred_variables.given_back, elsewhere),
        Seam(base, "_clip_gradients", stage_updates.clipped, "one norm of all stages", in_graphs=True),
        Seam(
            compat.LossScaleOptimizer,
            "check_finite",
            stage_updates.found_finite,
            "an overflow of one stage is all stages'",
            in_graphs=True,
        ),
        Seam(base, "finalize_variable_values", stage_updates.finalized, elsewhere),
    ]
