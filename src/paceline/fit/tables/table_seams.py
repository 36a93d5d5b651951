"""Where the files of this package are put into Keras; nothing changes without a `ParameterServerStrategy`."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from paceline.fit import compat
from paceline.fit.tables import row_lookup, sharded_weights, table_gradients, table_updates, tensorflow_saves
from paceline.fit.tables.optimizer_trial import exact_ways

Replace = Callable[[Any, str, Callable[[Any], Any]], None]


def install(replace: Replace, replace_in_graphs: Replace) -> None:
    """Puts them there. Call once.

    Args:
        replace: Given an owner, a name and a wrapper, puts ``wrapper(original)`` in the original's place.
        replace_in_graphs: The same, for what users' `tf.function`s reach.
    """
    replace_in_graphs(keras.Layer, "add_weight", sharded_weights.made_by_layer)
    replace(keras.Variable, "_initialize_with_initializer", sharded_weights.initialized)
    replace(keras.Variable, "numpy", sharded_weights.read_whole)
    replace(keras.Variable, "__array__", sharded_weights.converted)
    replace(keras.Variable, "_serialize_to_tensors", tensorflow_saves.in_checkpoint)
    replace(keras.Variable, "_restore_from_tensors", tensorflow_saves.from_checkpoint)
    replace(keras.Model, "export", tensorflow_saves.exported)
    keras.Layer.weights = sharded_weights.listed(keras.Layer.weights)
    for name in ("trainable_weights", "non_trainable_weights"):
        setattr(keras.Layer, name, sharded_weights.listed_whole(getattr(keras.Layer, name)))
    replace(keras.Layer, "get_weights", sharded_weights.got_whole)
    replace(keras.Layer, "set_weights", sharded_weights.set_whole)
    replace_in_graphs(compat.numpy_module, "take", row_lookup.taken)
    keras.Variable.sparse_read = row_lookup.SparseRead()
    if not hasattr(keras.Variable, "device"):
        keras.Variable.device = property(_device_of)
    replace_in_graphs(tf.GradientTape, "gradient", table_gradients.taken)
    for optimizer in (compat.BaseOptimizer, compat.LossScaleOptimizer):
        replace_in_graphs(optimizer, "apply", sharded_weights.built_first)
    replace_in_graphs(compat.TFOptimizer, "add_variable_from_reference", sharded_weights.made_beside)
    replace_in_graphs(
        compat.BaseOptimizer,
        "_backend_apply_gradients",
        functools.partial(table_updates.applied, exact_ways=exact_ways),
    )
    replace_in_graphs(compat.BaseOptimizer, "_use_weight_decay", table_updates.decays)
    replace_in_graphs(compat.TFOptimizer, "_apply_weight_decay", table_updates.decayed)
    replace_in_graphs(compat.TFOptimizer, "_distributed_tf_update_step", table_updates.updated)
    replace_in_graphs(compat.TFOptimizer, "_overwrite_model_variables_with_average_value", table_updates.overwritten)
    replace_in_graphs(compat.TFOptimizer, "_backend_increment_gradient_accumulators", table_updates.accumulated)


def _device_of(variable: Any) -> str:
    """Where a Keras variable lies, as TensorFlow's tutorial of parameter servers asks the weights of a layer.

    Raises:
        AttributeError: it has no value yet, or lies on several servers; each shard in `layer.weights` has one.
    """
    if variable._value is None or sharded_weights.is_divided(variable):
        raise AttributeError(f"the variable {variable.path!r} has no device of its own")
    return str(variable._value.device)
