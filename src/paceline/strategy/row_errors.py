"""A step that fails because a worker has only a part of a batch's rows: one error says so, and what to write instead.

Usual causes are a batch size that is a constant in the model or the step, and batches whose axis 0 counts no rows
(`anchors, positives = data[0], data[1]`). Neither is searched for. One fact decides: the step can be built for a batch
of any number of rows, and cannot be built for the number that this worker has.
"""

import textwrap
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.comm.world import World
from paceline.observe.frames import users_line_of
from paceline.observe.graph_errors import shortened

FAULTS_OF_SHAPES = (ValueError, TypeError, IndexError, tf.errors.InvalidArgumentError)
"""What the two causes come to, in graphs, while graphs are built, and in eager steps."""
_MOST_LETTERS = 300
"""Of the step's own error; Keras adds all arguments of the layer."""


def specs_of(arguments: Any) -> Any:
    """A structure of arguments with specs in the place of tensors and arrays; other leaves stay."""
    return tf.nest.map_structure(_spec_of, arguments)


def raise_if_rows_explain(call: Callable[..., Any], specs: Any, world: World, *, name: str) -> None:
    """Raises a better error than a step's own one if the step has failed because of this worker's number of rows.

    The step's Python runs up to twice more, to build graphs that nobody runs.

    Args:
        call: The step in a replica context, which takes what `specs` describe.
        specs: From `specs_of`, of the step's arguments.
        world: Of the step.
        name: The step's.

    Raises:
        ValueError: the number of rows is the reason.
    """
    known = [leaf.shape[0] for leaf in tf.nest.flatten(specs) if _has_rows(leaf)]
    num_rows = next((size for size in known if size is not None), None)
    size = world.data.size
    if size == 1 or world.fatal is not None or not known or num_rows is None:
        return
    # A worker without rows is one of a batch of which no worker has more than one, and TensorFlow builds nearly
    # everything for no rows.
    num_rows = max(1, num_rows)
    part = tf.nest.map_structure(lambda leaf: _with_rows(leaf, {None, 0}, num_rows), specs)
    any_rows = tf.nest.map_structure(lambda leaf: _with_rows(leaf, {None, 0, num_rows}, None), specs)
    own = _fault_of_building(call, part)
    if own is None or _fault_of_building(call, any_rows) is not None:
        return
    line = users_line_of(own.__traceback__)
    text = textwrap.shorten(shortened(str(own).partition(" for '{{node")[0]), _MOST_LETTERS).rstrip(".")
    raise ValueError(
        f"each of the {size} workers computes its part of a batch's rows: {name} cannot be built for the part of "
        f"one worker, of shape {_shapes(part)}, but can be built for other numbers of rows. The error of the step"
        f"{f' in {line}' if line else ''}: {text}. If the model or the step has the batch size as a constant, write "
        "keras.ops.shape(x)[0] instead. If the step takes entries of axis 0 apart (anchors, positives = data[0], "
        "data[1]), that axis does not count rows: put the rows first, e.g. x of shape (rows, 2, ...) with x[:, 0] and "
        "x[:, 1], give a tuple of tensors, or train on one worker. [rows]"
    ) from own


def _spec_of(leaf: Any) -> Any:
    if tf.is_tensor(leaf) and not isinstance(leaf, tf.Variable):
        return tf.type_spec_from_value(leaf)
    return tf.TensorSpec(leaf.shape, leaf.dtype) if hasattr(leaf, "__array_interface__") else leaf


def _has_rows(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec) and bool(spec.shape.rank)


def _with_rows(spec: Any, replaced: set[int | None], num_rows: int | None) -> Any:
    """`spec`, if its first axis is one of the lengths `replaced` with `num_rows` in its place."""
    if not _has_rows(spec) or spec.shape[0] not in replaced:
        return spec
    return tf.TensorSpec([num_rows, *spec.shape[1:]], spec.dtype)


def _fault_of_building(call: Callable[..., Any], specs: Any) -> Exception | None:
    """Why `call` cannot be built for what `specs` describe; None: it can be."""
    has_been_built = False

    def build(arguments: Any) -> None:
        nonlocal has_been_built
        call(*arguments)
        has_been_built = True

    try:
        tf.function(build, autograph=False).get_concrete_function(specs)
    except Exception as fault:  # whatever a user's step raises
        # What variables made in there begin with, TensorFlow may not know once they are built, and nobody needs it.
        return None if has_been_built else fault
    return None


def _shapes(specs: Any) -> str:
    return ", ".join(str(leaf.shape).replace("None", "?") for leaf in tf.nest.flatten(specs) if _has_rows(leaf))
