"""The private names of Keras 3 that pipelines need, with reasons, and a check at import that they exist.

As `fit/compat.py`. Tested with Keras 3.15.

| name | why there is no public way |
|---|---|
| `Functional.call` | whether a class of the user's does something else than its graph |
| `Function._nodes_by_depth` | the calls of operations in a model, in the order in which Keras runs them |
| `Node.is_input`, `.operation`, `.arguments`, `.input_tensors`, `.outputs`, `.parent_nodes` | one such call |
| `functional.operation_fn` | how a model hands `training` to its layers |
| `Functional._standardize_inputs`, `Sequential._functional` | how a model takes what it is called with |
| `Functional._outputs_struct` | what it returns |
| `set_keras_mask`, `get_keras_mask` | where Keras keeps the mask of a tensor |
| `in_symbolic_scope` | whether a variable is read to infer shapes only |
| `Layer._trainable_variables` | which variables are weights, also those that are frozen for a while |
| `Variable._deferred_initialize`, `._direct_assign`, `._initializer`, `._value` | a variable without a value |
| `BaseOptimizer._clip_gradients`, `LossScaleOptimizer.check_finite` | what one optimizer decides over all stages |
| `TensorBoard._log_weights` | where it reads every weight |
| `Trainer._compile_loss`, `._compile_metrics`, `._loss_tracker`, `._symbolic_build` | the parts of a trainer's step |
"""

from typing import Any

import keras

from paceline.fit.compat import BaseOptimizer, LossScaleOptimizer, all_layers

try:
    from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
    from keras.src.backend.common.symbolic_scope import in_symbolic_scope
    from keras.src.models.functional import Functional, operation_fn
    from keras.src.ops.node import Node
    from keras.src.trainers.trainer import Trainer
except ImportError as fault:
    raise ImportError(
        f"Paceline does not support Keras {keras.__version__}: a name that it needs is missing ({fault}). "
        "Install a Keras that Paceline supports (3.10 to 3.15), or a newer Paceline. [version]"
    ) from fault

_MISSING = [
    *(f"Functional.{name}" for name in ("call", "_standardize_inputs") if not hasattr(Functional, name)),
    *(f"Node.{name}" for name in ("input_tensors", "parent_nodes") if not hasattr(Node, name)),
    *(
        f"Node.{name}"
        for name in ("is_input", "operation", "outputs", "arguments")
        if name not in Node.__init__.__code__.co_names
    ),
    *(f"Function.{name}" for name in ("_nodes_by_depth",) if name not in keras.Function.__init__.__code__.co_names),
    *(f"BaseOptimizer.{name}" for name in ("_clip_gradients",) if not hasattr(BaseOptimizer, name)),
    *(f"LossScaleOptimizer.{name}" for name in ("check_finite",) if not hasattr(LossScaleOptimizer, name)),
    *(f"TensorBoard.{name}" for name in ("_log_weights",) if not hasattr(keras.callbacks.TensorBoard, name)),
    *(
        f"Layer.{name}"
        for name in ("_trainable_variables",)
        if name not in keras.Layer.variables.fget.__code__.co_names
    ),
    *(f"Variable.{name}" for name in ("_deferred_initialize", "_direct_assign") if not hasattr(keras.Variable, name)),
    *(f"Trainer.{name}" for name in ("_symbolic_build",) if not hasattr(Trainer, name)),
    *(
        f"Trainer.{name}"
        for name in ("_compile_loss", "_compile_metrics", "_loss_tracker")
        if name not in Trainer.metrics.fget.__code__.co_names
    ),
]
if _MISSING:
    raise ImportError(
        f"Paceline's pipelines do not support Keras {keras.__version__}: it has no {', '.join(_MISSING)}. Install a "
        "Keras that Paceline supports (3.10 to 3.15), or a newer Paceline. [version]"
    )


def runs_its_graph(model: keras.Model) -> bool:
    """Whether calling `model` runs the graph of layers from its inputs to its outputs, and nothing else."""
    call = type(model).call
    return call is Functional.call or call is keras.Sequential.call


def calls_of(inputs: list[Any], outputs: list[Any]) -> list[Any]:
    """The calls of operations that make `outputs` from `inputs`, as Keras's nodes, in the order in which Keras runs.

    Inputs are calls, too.
    """
    by_depth = keras.Function(inputs, outputs, name="calls")._nodes_by_depth
    return [call for depth in sorted(by_depth, reverse=True) for call in by_depth[depth]]


def made_to_train(layer: keras.Layer) -> list[Any]:
    """The variables that a layer and those within it have made as weights to train, frozen ones, too."""
    return [variable for one in all_layers(layer) for variable in one._trainable_variables]


def repeated(call: Any, tensors: dict[int, Any], training: bool | None) -> None:
    """Makes a call again, on other tensors, as the model would.

    Args:
        call: Keras's node.
        tensors: By the identity of each `KerasTensor`, what is in its place; gets what the call makes.
        training: As given to the model.
    """
    args, kwargs = call.arguments.fill_in(tensors)
    made = operation_fn(call.operation, training=training)(*args, **kwargs)
    for tensor, value in zip(call.outputs, keras.tree.flatten(made), strict=True):
        tensors[id(tensor)] = value


def standardized(model: Any, x: Any) -> list[Any]:
    """The tensors that the graph of `model` begins with, if the model is called with `x`."""
    functional = getattr(model, "_functional", None) or model
    return list(functional._standardize_inputs(x))


def packed_outputs(model: Any, outputs: list[Any]) -> Any:
    """The flat outputs of the graph of `model`, as the model returns them."""
    functional = getattr(model, "_functional", None) or model
    packed = keras.tree.pack_sequence_as(functional._outputs_struct, outputs)
    return packed[0] if isinstance(packed, (list, tuple)) and len(packed) == 1 else packed


__all__ = [
    "calls_of",
    "get_keras_mask",
    "in_symbolic_scope",
    "made_to_train",
    "packed_outputs",
    "repeated",
    "runs_its_graph",
    "set_keras_mask",
    "standardized",
]
