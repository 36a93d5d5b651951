"""The replacements in Keras for parameter servers, in processes that make a `ParameterServerStrategy`."""

import keras

from paceline.fit import compat
from paceline.parameter_server import atomic_updates, dealt_functions, step_trace
from paceline.parameter_server.tables import table_seams
from paceline.strategy.seams import Seam


def rows() -> list[Seam]:
    """The replacements."""
    together = "servers add what several workers bring"
    return [
        *table_seams.rows(),
        Seam(keras.Variable, "assign_add", atomic_updates.added, together, in_graphs=True),
        Seam(keras.Variable, "assign_sub", atomic_updates.subtracted, together, in_graphs=True),
        Seam(
            keras.random.SeedGenerator,
            "next",
            step_trace.drawn_in_dealt_step,
            "each step has a seed of its own",
            in_graphs=True,
        ),
        Seam(compat.trainer_module, "potentially_ragged_concat", dealt_functions.put_together, "rows in their order"),
    ]
