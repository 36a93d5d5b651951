"""Models and settings that no pipeline can train, said in a sentence before anything starts."""

from typing import Any

import tensorflow as tf

from paceline.comm.world import current_world
from paceline.errors import ConfigurationError
from paceline.fit.compat import TensorFlowTrainer, all_layers
from paceline.fit.strategies import is_made_in_no_scope
from paceline.strategy.base import named_strategies
from paceline.strategy.pipeline import PipelineStrategy

_OWN_STEPS = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")


def refuse_outside_scope(model: Any) -> None:
    """Refuses to train a model that was made in no scope, beside a pipeline: each worker would train the whole of it.

    Raises:
        ConfigurationError: that is so.
    """
    world = current_world()
    if world.size == 1 or world.solo_training_allowed or PipelineStrategy.__name__ not in named_strategies:
        return
    if is_made_in_no_scope(model):
        raise ConfigurationError(
            f"This model was made outside of the PipelineStrategy's scope, so each of the {world.size} workers would "
            "train the whole model, and none a stage of it. Make the strategy first, then make and compile the model "
            "within `with strategy.scope():`. If each worker is meant to train such a model besides: paceline run "
            "--allow-independent. [outside-scope]"
        )


def refuse_xla(jit_compile: Any) -> None:
    """Refuses what `compile` was given, if that asks for XLA.

    Raises:
        ConfigurationError: that is so.
    """
    if jit_compile not in (None, False, "auto"):
        raise ConfigurationError(
            "jit_compile=True compiles a whole step, but a pipeline runs it in parts. Leave jit_compile out. [pipeline]"
        )


def refuse_data(data: Any) -> None:
    """Refuses batches whose rows cannot be cut out; given a batch, or its specs.

    Raises:
        ConfigurationError: that is so.
    """
    for leaf in tf.nest.flatten(data):
        if isinstance(leaf, (tf.RaggedTensor, tf.RaggedTensorSpec, tf.SparseTensor, tf.SparseTensorSpec)):
            kind = type(leaf).__name__.removesuffix("Spec")
            raise ConfigurationError(
                f"Received batches of a {kind}: a pipeline cuts dense tensors into micro-batches. Make it dense before "
                "batch, or train without a pipeline. [pipeline]"
            )


def refuse(model: Any) -> None:
    """Refuses a model that does what no pipeline can do.

    Raises:
        ConfigurationError: that is so.
    """
    if model.run_eagerly or tf.config.functions_run_eagerly():
        raise ConfigurationError(
            "run_eagerly=True runs a whole step operation by operation, but a pipeline runs parts of it as graphs. "
            "Leave run_eagerly out; to debug a step, train without a strategy. [pipeline]"
        )
    refuse_xla(model._jit_compile)
    own = [name for name in _OWN_STEPS if getattr(type(model), name) is not getattr(TensorFlowTrainer, name)]
    if own:
        raise ConfigurationError(
            f"The class {type(model).__name__} has its own {' and '.join(own)}, but a pipeline runs a step in parts on "
            "several workers, and needs Keras's own: make the model with keras.Sequential, or keras.Model(inputs, "
            "outputs). [pipeline]"
        )
    stateful = [layer.name for layer in all_layers(model) if getattr(layer, "stateful", False) is True]
    if stateful:
        raise ConfigurationError(
            f"stateful=True in {', '.join(stateful)}: such a layer keeps one state for each row of a batch, and a "
            "pipeline gives it micro-batches of fewer rows. Leave stateful out. [pipeline]"
        )
