"""Refuses datasets of single examples, which are not batched: Paceline would divide each example into rows.

A model that declares its input tells an example from a batch by its number of axes; a label without any axis tells,
too, where Keras's own step takes it. A step of the user's may do anything with either: there more must be known.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.data.batch_rows import DataDescription
from paceline.fit import compat

_LOGGER = logging.getLogger("paceline")

_said: set[str] = set()

Shape = tuple[int | None, ...]


def check_batched(model: Any, data: DataDescription, strategy: Any, step: str) -> None:
    """Refuses data that are sure to be single examples; the chief warns, once, of data that are likely to be.

    Args:
        model: Built, if its data's shapes tell how.
        data: What is known of them.
        strategy: The model's.
        step: The name of the method that takes a batch: "train_step", "test_step", "predict_step".

    Raises:
        ValueError: they are.
    """
    if strategy.group.size == 1 or data.is_local or data.may_be_batched:
        return
    check_elements(model, data.element_spec, strategy, step, is_never_batched=data.is_never_batched)


def check_elements(model: Any, element_spec: Any, strategy: Any, step: str, *, is_never_batched: bool = False) -> None:
    """As `check_batched`, of elements of this spec, which nothing is known to have batched."""
    x, y = _shapes_of(element_spec)
    is_keras_step = is_of_keras(model, step)
    labels = y if step != "predict_step" else []
    is_sure = is_keras_step or is_never_batched
    reason = why_examples_by_inputs(x, _declared_inputs(model), is_keras_step=is_keras_step)
    reason = reason or (why_examples_by_labels(x, labels, are_slices=is_never_batched) if is_sure else None)
    if reason is not None:
        raise _refused(reason, strategy)
    shapes = str(x)
    if is_never_batched and not is_keras_step and shapes not in _said and strategy.world.is_chief:
        _said.add(shapes)
        _LOGGER.warning(
            "the dataset is not batched (from_tensor_slices without batch). Paceline takes axis 0 of each "
            "element, of shape %s, for the rows of a batch, and divides it among the %d replicas. If an element "
            "is one example: %s [not-batched]",
            shapes.strip("[]"),
            strategy.group.size,
            _ADVICE,
        )


def is_of_keras(model: Any, method: str) -> bool:
    """Whether a method of a model, such as its `train_step`, is Keras's own."""
    return getattr(type(model), method) is getattr(compat.TensorFlowTrainer, method)


def refuse_examples(data: DataDescription, strategy: Any, takes: Callable[[Any], bool]) -> None:
    """Refuses data whose elements a model cannot be called on, while it can be called on batches of them.

    Args:
        data: What is known of those from whose shapes the model could not be built.
        strategy: The model's.
        takes: Whether the model can be called on x of a spec.

    Raises:
        ValueError: the data are single examples.
    """
    if strategy.group.size == 1 or data.is_local or data.may_be_batched:
        return
    x = data.element_spec[0] if isinstance(data.element_spec, tuple) else data.element_spec
    shapes = _shapes(x)
    if None in shapes or not all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(x)):
        return
    if takes(tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), x)):
        listed = _listed([shape for shape in shapes if shape is not None])
        raise _refused(f"the model takes batches of elements of shape {listed}, but not the elements", strategy)


def _refused(reason: str, strategy: Any) -> ValueError:
    return ValueError(
        f"the dataset gives single examples, not batches: {reason}. Each of the {strategy.group.size} "
        f"replicas would get a piece of each example instead of rows. {_ADVICE} [not-batched]"
    )


_ADVICE = "Batch the dataset: dataset.batch(global_batch_size)"


def why_examples_by_inputs(
    x: Sequence[Shape | None], declared: Sequence[tuple[Shape, ...]], *, is_keras_step: bool
) -> str | None:
    """Why elements of these shapes are single examples, by what models declare for batches; else None; pure.

    Args:
        x: Shapes of the components of x, as they are in an element of a dataset that nothing has batched; None of one
            whose rank is not known.
        declared: The shapes of the inputs, axis of the rows included: of the model, then of models within it.
        is_keras_step: Whether it is Keras that calls the model on x. A step of the user's may give it something else:
            then sizes must be known, and equal.
    """
    if not x or any(not shape for shape in x):
        return None  # scalars among them: somebody else's matter
    shapes = [shape for shape in x if shape]
    for number, inputs in enumerate(declared):
        if len(inputs) != len(shapes) or not all(map(_is_one_example, shapes, inputs)):
            continue
        sizes = [size for shape in (*shapes, *(one[1:] for one in inputs)) for size in shape]
        if None not in sizes or (is_keras_step and number == 0):
            return f"x has the shape {_listed(shapes)}, but the model expects batches of shape {_listed(inputs)}"
    return None


def why_examples_by_labels(
    x: Sequence[Shape | None], y: Sequence[Shape | None], *, are_slices: bool = False
) -> str | None:
    """Why elements of these shapes are single examples, by labels that have no axis; else None; pure.

    Args:
        x: Shapes of the components of x; None of one whose rank is not known.
        y: Those of y.
        are_slices: Whether an element is sure to be one entry of arrays: x may have any shape then.
    """
    if not x or not y or any(shape != () for shape in y):
        return None
    if all(shape and shape[0] is not None for shape in x):
        return f"x has the shape {_listed([shape for shape in x if shape])}, but its label is a scalar"
    return "its labels are scalars" if are_slices and all(shape != () for shape in x) else None


def _is_one_example(shape: Shape, declared: Shape) -> bool:
    """Whether `shape` is that of one row of what the model declares, and Keras could not take it for several."""
    if len(shape) != len(declared) - 1 or not _fits(shape, declared[1:]):
        return False
    # Keras gives rows without a last axis one of length 1.
    return not (declared[-1] == 1 and _fits((*shape[1:], 1), declared[1:]))


def _fits(shape: Shape, declared: Shape) -> bool:
    return all(None in pair or pair[0] == pair[1] for pair in zip(shape, declared, strict=True))


def _shapes_of(element_spec: Any) -> tuple[list[Shape | None], list[Shape | None]]:
    """Of x and of y."""
    parts = element_spec if isinstance(element_spec, tuple) else (element_spec,)
    x, y, *_ = (*parts, None, None)
    return _shapes(x), _shapes(y)


def _shapes(spec: Any) -> list[Shape | None]:
    leaves = [leaf for leaf in tf.nest.flatten(spec) if leaf is not None]
    return [
        tuple(leaf.shape) if isinstance(leaf, tf.TensorSpec) and leaf.shape.rank is not None else None
        for leaf in leaves
    ]


def _declared_inputs(model: Any) -> list[tuple[Shape, ...]]:
    """Of the model, or nothing if it declares none; then of the models in it."""
    of_models = []
    for one in (model, *(layer for layer in compat.all_layers(model) if layer is not model)):
        is_declaring = isinstance(one, keras.Sequential) or compat.is_functional(one)
        inputs = keras.tree.flatten(one.inputs) if is_declaring and one.built else []
        of_models.append(tuple(tuple(tensor.shape) for tensor in inputs if tensor is not None))
    return of_models


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(str(shape).replace("None", "?") for shape in shapes)
