"""Compiles and builds a model before its first step, without reading data; all ranks start from the chief's values.

Keras builds a model that trains under a strategy from the first batch of an iterator that it then throws away: one
shuffle of the data is lost, and the run is no longer the one that a single worker makes. The dataset's element spec
knows all that the build needs.
"""

import contextlib
import functools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.group import Group
from paceline.data.own_rows.replicated import unwrapped
from paceline.fit import compat
from paceline.fit.beginning import begin_together
from paceline.fit.followers_writer import traced_as_on_chief
from paceline.fit.metrics import read_as_they_are
from paceline.fit.one_workers_step import traced_step
from paceline.fit.run import Run
from paceline.fit.unbatched import check_batched, is_of_keras, refuse_examples
from paceline.strategy.as_one_worker import as_one_worker
from paceline.strategy.base import SynchronousStrategy

_CANNOT = "_paceline_cannot_be_built_from_shapes"
"""On a model that was tried. Keras then takes it for built (a GAN without a `call`), and a second time it would build
only the optimizer that `compile` has made, which such a model may never use."""


def build_from_shapes(model: Any, iterator: Any, data_batch: Any, strategy: SynchronousStrategy) -> None:
    """Builds a model from the shapes of its data, then gives all ranks the chief's values. Collective.

    Args:
        model: To be built, as far as that can be done from shapes.
        iterator: The epoch iterator of its first step; None: the step is of `data_batch`.
        data_batch: A batch.
        strategy: Whose ranks train it.
    """
    data = None if iterator is None else iterator.source.description
    fit = Run.of_fit(model)
    is_training = fit is not None and iterator is not compat.validation_iterator(model)
    step = "train_step" if is_training else "test_step"
    if data is not None:
        check_batched(model, data, strategy, step)
    shapes = shapes_of(iterator, data_batch)
    if _are_known(shapes):
        with strategy.scope():
            _try_to_build(model, shapes)
            if data is not None and getattr(model, _CANNOT, False) and is_of_keras(model, step):
                refuse_examples(data, strategy, functools.partial(_takes, model))
    if strategy.group.size > 1 and is_due(model, each_time=iterator is not None):
        if iterator is not None:
            begin_together(model, iterator.source.description, iterator.num_batches, strategy, fit is not None)
        share_chiefs_values(model, strategy)


def shapes_of(iterator: Any, data_batch: Any) -> Any:
    """What is known of the batch of a first step: the specs of an iterator's, or the batch itself."""
    return data_batch if iterator is None else unwrapped(iterator._distributed_dataset.element_spec)


def build_as_far_as_known(model: Any, shapes: Any, strategy: Any) -> None:
    """Builds a model in the scope of `strategy`; what cannot be built from shapes is built when its step is traced.

    Metrics are built by the data, also those of a step of the user's: a step that workers run for servers cannot make
    variables.
    """
    if _are_known(shapes):
        with strategy.scope():
            _try_to_build(model, shapes, leaves_to_step=False)


def build_from(model: Any, shapes: Any) -> None:
    """Builds a model, its metrics and its optimizer from the element spec of its data, if they are not yet built.

    Raises:
        RuntimeError: that is not enough for this model.
    """
    if _are_known(shapes):
        with model.distribute_strategy.scope():
            _try_to_build(model, shapes)
        if not _has_built_layers(model) or not _has_built_metrics(model):
            _trace_a_step(model, shapes)
    if not model.built:
        raise RuntimeError(
            f"{type(model).__name__} cannot be built from the shapes of its data, so it has no variables that a "
            "snapshot could restore. Call the model on a batch, or call build(...), before fit. [unbuilt-model]"
        )


def _trace_a_step(model: Any, shapes: Any) -> None:
    """Has a `train_step` of the user's build what only it calls, as the networks of a GAN: traced, and not taken."""
    try:
        with as_one_worker(), traced_as_on_chief():
            traced_step(model.train_step, shapes)
    except Exception:  # whatever a user's step raises: what is missing is told where it is looked for
        return


def _are_known(shapes: Any) -> bool:
    return all(
        getattr(leaf, "shape", None) is not None and getattr(leaf.shape, "rank", 0) is not None
        for leaf in tf.nest.flatten(shapes)
        if leaf is not None
    )


def _try_to_build(model: Any, shapes: Any, *, leaves_to_step: bool = True) -> None:
    # A model that cannot be built from shapes is built by its first step, as without a strategy; an input that
    # is really wrong raises there again, with the step's own message.
    if not getattr(model, _CANNOT, False) and not is_built_from(model, shapes, leaves_to_step=leaves_to_step):
        object.__setattr__(model, _CANNOT, True)


def is_built_from(model: Any, shapes: Any, *, leaves_to_step: bool = True) -> bool:
    """Builds what is not yet built of a model, its metrics and its optimizer; False if that fails.

    Metrics and losses of a model with a step of the user's are left to that step, which builds them as in plain Keras:
    what the step hands to them need not be like the data, and decides, for example, which metric "accuracy" is. An
    optimizer is left to the first step where that step makes weights, as where only `compute_loss` calls some layer.

    Args:
        model: To be built.
        shapes: Of its data.
        leaves_to_step: Whether this is so; else all is built by the data.
    """
    optimizer: Any = getattr(model, "optimizer", None)
    left = compat.OF_COMPILE if leaves_to_step and not _has_keras_steps(model) else ()
    waits = leaves_to_step and optimizer is not None and not optimizer.built
    try:
        with (
            read_as_they_are(),
            _replaced(model, dict.fromkeys(left)),
            _replaced(optimizer, {"built": True} if waits else {}),
        ):
            model._symbolic_build(data_batch=shapes)
        if waits and _has_built_layers(model):
            optimizer.build(model.trainable_variables)
    except Exception:  # whatever a user's `call` raises on symbolic input
        return False
    return True


@contextlib.contextmanager
def _replaced(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """While this lasts, these attributes have other values, by which Keras decides what there is to build."""
    kept = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            object.__setattr__(owner, name, value)
        yield
    finally:
        for name, value in kept.items():
            object.__setattr__(owner, name, value)


def _has_keras_steps(model: Any) -> bool:
    return all(is_of_keras(model, step) for step in ("train_step", "test_step"))


def _has_built_layers(model: Any) -> bool:
    return all(layer.built for layer in compat.all_layers(model))


def _has_built_metrics(model: Any) -> bool:
    return all(one is None or one.built for one in (getattr(model, name) for name in compat.OF_COMPILE))


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


_shared: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Models whose ranks have had the chief's values."""


def is_due(model: Any, *, each_time: bool) -> bool:
    """Whether the ranks' values may differ: at each `fit` or `evaluate` (not inside a fit), once for single batches."""
    fit = Run.of_fit(model)
    if fit is None:
        due = each_time or model not in _shared
    else:
        due, fit.has_shared_values = not fit.has_shared_values, True
    _shared.add(model)
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
