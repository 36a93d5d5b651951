"""The replacements in Keras for tables on parameter servers; nothing changes without a `ParameterServerStrategy`."""

import functools
from typing import Any

import keras
import tensorflow as tf

from paceline.fit import compat
from paceline.parameter_server.tables import (
    row_lookup,
    sharded_weights,
    table_gradients,
    table_updates,
    tensorflow_saves,
)
from paceline.parameter_server.tables.update_mode_probe import exact_modes
from paceline.strategy.seams import Seam


def rows() -> list[Seam]:
    """The replacements."""
    layer, variable = keras.Layer, keras.Variable
    return [
        Seam(variable, "_initialize_with_initializer", sharded_weights.initialized, "each server draws its rows"),
        Seam(variable, "numpy", sharded_weights.read_whole, "all shards, one after the other"),
        Seam(variable, "__array__", sharded_weights.converted, "all shards, one after the other"),
        Seam(variable, "_serialize_to_tensors", tensorflow_saves.in_checkpoint, "checkpoints have whole tables"),
        Seam(variable, "_restore_from_tensors", tensorflow_saves.from_checkpoint, "checkpoints have whole tables"),
        Seam(layer, "weights", sharded_weights.listed, "TensorFlow's tutorial looks at the shards of a layer"),
        Seam(
            layer,
            ("trainable_weights", "non_trainable_weights"),
            sharded_weights.listed_whole,
            "optimizers and files have a table as one weight",
        ),
        Seam(layer, "get_weights", sharded_weights.got_whole, "all shards, one after the other"),
        Seam(layer, "set_weights", sharded_weights.set_whole, "each server gets its rows"),
        Seam(compat.numpy_module, "take", row_lookup.taken, "an Embedding fetches rows, no table", in_graphs=True),
        Seam(variable, "sparse_read", lambda _: row_lookup.SparseRead(), "what `tf.gather` calls", may_lack=True),
        Seam(
            variable,
            "device",
            lambda kept: kept or property(_device_of),
            "TensorFlow's tutorial asks for it",
            may_lack=True,
        ),
        Seam(tf.GradientTape, "gradient", table_gradients.taken, "gradients of shards are one table's", in_graphs=True),
        Seam(
            compat.TFOptimizer,
            "add_variable_from_reference",
            sharded_weights.made_beside,
            "slots lie beside their shards",
            in_graphs=True,
        ),
        Seam(
            compat.BaseOptimizer,
            "_backend_apply_gradients",
            functools.partial(table_updates.applied, exact_modes=exact_modes),
            "tables are updated row by row",
            in_graphs=True,
        ),
        *(
            Seam(owner, name, wrapper, "tables are updated row by row", in_graphs=True)
            for owner, name, wrapper in (
                (compat.BaseOptimizer, "_use_weight_decay", table_updates.decays),
                (compat.TFOptimizer, "_apply_weight_decay", table_updates.decayed),
                (compat.TFOptimizer, "_distributed_tf_update_step", table_updates.updated),
                (compat.TFOptimizer, "_overwrite_model_variables_with_average_value", table_updates.overwritten),
                (compat.TFOptimizer, "_backend_increment_gradient_accumulators", table_updates.accumulated),
            )
        ),
    ]


def _device_of(variable: Any) -> str:
    """Where a Keras variable lies, as TensorFlow's tutorial of parameter servers asks the weights of a layer.

    Raises:
        AttributeError: it has no value yet, or lies on several servers; each shard in `layer.weights` has one.
    """
    if variable._value is None or sharded_weights.is_divided(variable):
        raise AttributeError(f"the variable {variable.path!r} has no device of its own")
    return str(variable._value.device)
