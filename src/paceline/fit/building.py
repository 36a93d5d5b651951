"""Compiles and builds a model before its first step, without reading data; all ranks start from the chief's values.

Keras builds a model that trains under a strategy from the first batch of an iterator that it then throws away: one
shuffle of the data is lost, and the run is no longer the one that a single worker makes. The dataset's element spec
knows all that the build needs.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.group import Group
from paceline.fit import compat
from paceline.fit.beginning import begin_together
from paceline.fit.metrics import read_as_they_are
from paceline.fit.strategies import paceline_strategy_of, servers_strategy_of
from paceline.fit.unbatched import check_batched, is_of_keras, refuse_examples
from paceline.strategy.replica_loops import trainers_step

_LOGGER = logging.getLogger("paceline")

Function = Callable[..., Any]

_CANNOT = "_paceline_cannot_be_built_from_shapes"
"""On a model that was tried. Keras then takes it for built (a GAN without a `call`), and a second time it would build
only the optimizer that `compile` has made, which such a model may never use."""


def built_without_data(keras_build: Function) -> Function:
    """Keras's `_maybe_symbolic_build` from the shapes of the data, then the chief's values for all. Collective."""

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = paceline_strategy_of(self)
        if strategy is None:
            if not _built_under_servers(self, iterator, data_batch):
                keras_build(self, iterator=iterator, data_batch=data_batch)
            return
        data = None if iterator is None else iterator.description
        is_training = getattr(self, "_paceline_in_fit", False) and iterator is not compat.validation_iterator(self)
        step = "train_step" if is_training else "test_step"
        if data is not None:
            check_batched(self, data, strategy, step)
        shapes = data_batch if iterator is None else iterator._distributed_dataset.element_spec
        if _are_known(shapes):
            with strategy.scope():
                _try_to_build(self, shapes)
                if data is not None and getattr(self, _CANNOT, False) and is_of_keras(self, step):
                    refuse_examples(data, strategy, functools.partial(_takes, self))
        if strategy.group.size > 1 and is_due(self, each_time=iterator is not None):
            if iterator is not None:
                training = bool(getattr(self, "_paceline_in_fit", False))
                begin_together(self, iterator.description, iterator.num_batches, strategy, training)
            share_chiefs_values(self, strategy)

    return _maybe_symbolic_build


def _built_under_servers(model: Any, iterator: Any, data_batch: Any) -> bool:
    """Builds a model under parameter servers, from shapes; whether it is one.

    What cannot be built from shapes is built when its step is traced.
    """
    if (strategy := servers_strategy_of(model)) is None:
        return False
    shapes = data_batch if iterator is None else iterator._distributed_dataset.element_spec
    if _are_known(shapes):
        with strategy.scope():
            _try_to_build(model, shapes)
    return True


def build_from(model: Any, shapes: Any) -> None:
    """Builds a model, its metrics and its optimizer from the element spec of its data, if they are not yet built.

    Raises:
        RuntimeError: that is not enough for this model.
    """
    if _are_known(shapes):
        with model.distribute_strategy.scope():
            _try_to_build(model, shapes)
        if not all(layer.built for layer in compat.all_layers(model)):
            _trace_a_step(model, shapes)
    if not model.built:
        raise RuntimeError(
            f"{type(model).__name__} cannot be built from the shapes of its data, so it has no variables that a "
            "snapshot could restore. Call the model on a batch, or call build(...), before fit. [unbuilt-model]"
        )


def _trace_a_step(model: Any, shapes: Any) -> None:
    """Has a `train_step` of the user's build what only it calls, as the networks of a GAN: traced, and not taken."""

    def step(data: Any) -> Any:
        return model.distribute_strategy.run(model.train_step, args=(data,))

    try:
        with trainers_step():
            tf.function(step, autograph=False).get_concrete_function(shapes)
    except Exception:  # whatever a user's step raises: what is missing is told where it is looked for
        return


def _are_known(shapes: Any) -> bool:
    return all(
        getattr(leaf, "shape", None) is not None and getattr(leaf.shape, "rank", 0) is not None
        for leaf in tf.nest.flatten(shapes)
        if leaf is not None
    )


def _try_to_build(model: Any, shapes: Any) -> None:
    # A model that cannot be built from shapes is built by its first step, as without a strategy; an input that
    # is really wrong raises there again, with the step's own message.
    if not getattr(model, _CANNOT, False) and not is_built_from(model, shapes):
        object.__setattr__(model, _CANNOT, True)


def is_built_from(model: Any, shapes: Any) -> bool:
    """Builds what is not yet built of a model, its metrics and its optimizer; False if that fails."""
    try:
        with read_as_they_are():
            model._symbolic_build(data_batch=shapes)
    except Exception:  # whatever a user's `call` raises on symbolic input
        return False
    return True


def _takes(model: Any, x: Any) -> bool:
    """Whether a model can be called on x of this spec."""
    x = tf.nest.map_structure(lambda leaf: keras.KerasTensor(leaf.shape, leaf.dtype.name), x)
    try:
        with read_as_they_are():
            # A `Sequential` remembers the input with which it could not be built.
            for layer in model.layers if isinstance(model, keras.Sequential) else [model]:
                x = layer(x)
    except Exception:  # whatever a user's `call` raises on symbolic input
        return False
    return True


def is_due(model: Any, *, each_time: bool) -> bool:
    """Whether the ranks' values may differ: at each `fit` or `evaluate` (not inside a fit), once for single batches."""
    if getattr(model, "_paceline_in_fit", False) and getattr(model, "_paceline_shared", False):
        return False
    due = each_time or not getattr(model, "_paceline_shared", False)
    object.__setattr__(model, "_paceline_shared", True)
    return due


def share_chiefs_values(model: Any, strategy: Any) -> None:
    """Gives all weights, and the optimizer's state as far as it exists, the chief's values. Collective."""
    variables = list(model.variables) if model.built else []
    if getattr(model, "optimizer", None) is not None:
        variables += list(model.optimizer.variables)
    unique = list({id(variable): variable for variable in variables}.values())
    share_values(unique, strategy.group)


def share_values(variables: Sequence[Any], group: Group) -> None:
    """Gives variables the values that they have on the first rank of the group. Collective."""
    values = group.broadcast([variable.numpy() for variable in variables])
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def without_xla(keras_compile: Function) -> Function:
    """Keras's `Trainer.compile`, which leaves the step uncompiled where it has to talk to other ranks."""
    signature = inspect.signature(keras_compile)

    def compile_(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = paceline_strategy_of(self)
        if strategy is None and servers_strategy_of(self) is not None:
            if signature.bind(self, *args, **kwargs).arguments.get("jit_compile") not in (None, False, "auto"):
                _LOGGER.warning(
                    "jit_compile=True: XLA cannot compile a step whose variables lie on parameter servers; the step "
                    "runs without XLA, with the same numbers."
                )
            return keras_compile(self, *args, **kwargs)
        if strategy is None or strategy.group.size == 1:
            return keras_compile(self, *args, **kwargs)
        arguments = signature.bind(self, *args, **kwargs)
        if arguments.arguments.get("jit_compile") not in (None, False, "auto") and strategy.world.is_chief:
            _LOGGER.warning(
                "jit_compile=True: XLA cannot compile a step in which %d replicas communicate; the step runs "
                "without XLA, with the same numbers.",
                strategy.group.size,
            )
        result = keras_compile(self, *args, **kwargs)
        self.jit_compile = False  # not in what is saved with the model
        return result

    return compile_
