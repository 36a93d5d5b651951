"""Stages that only choose, repeat or shuffle, made again over others; and those that change nothing at all."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.own_rows.staying_maps import BATCHES

_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "Repeat": lambda rows, one: _kept_apart(rows, one).repeat(compat.count_of(one)),
    "Take": lambda rows, one: rows.take(compat.count_of(one)),
    "Skip": lambda rows, one: rows.skip(compat.count_of(one)),
    "Shuffle": compat.shuffled_alike,
}


def is_order(one: Any) -> bool:
    """Whether a stage only chooses, repeats or shuffles, and can be made again over others."""
    kind = compat.kind_of(one)
    return kind in _ORDERS and (kind != "Shuffle" or compat.has_shared_seeds(one))


def in_order_of(one: Any, rows: Any) -> Any:
    """`rows`, or batches, repeated, left out or shuffled as a stage of the script's dataset does it."""
    return _ORDERS[compat.kind_of(one)](rows, one)


def _kept_apart(rows: Any, repeat: Any) -> Any:
    # TensorFlow makes one stage of a shuffle and a repeat right behind it, which draws other seeds from the second
    # iterator on. In the script's dataset a map may be between the two: a take of all rows stands for it. It reads
    # up to the end, as a map does, since a repeat below draws seeds there; without a count, TensorFlow leaves it out.
    [source] = compat.inputs_of(repeat)
    if compat.kind_of(source) == "Shuffle":
        return rows
    while is_left_out(source):
        [source] = compat.inputs_of(source)
    return rows.take(-1 if compat.kind_of(source) == "Shuffle" else tf.int64.max)


def made_again(one: Any, sources: Sequence[Any]) -> Any:
    """A zip, a batch, a prefetch, options, or one of `is_order` over other sources; None: the stage is another one."""
    kind = compat.kind_of(one)
    if kind == "Zip":
        return tf.data.Dataset.zip(tf.nest.pack_sequence_as(compat.zipped_of(one), sources))
    if len(sources) != 1:
        return None
    [rows] = sources
    if is_order(one):
        return in_order_of(one, rows)
    if kind in BATCHES and (given := compat.options_of_batch(one)) is not None:
        return rows.batch(**given)
    if kind == "Prefetch":
        return rows.prefetch(compat.read_ahead_of(one))
    return rows.with_options(one.options()) if kind == "Options" else None


def is_left_out(dataset: Any) -> bool:
    """Whether TensorFlow leaves a stage out, as it changes nothing, before it makes one stage of two others."""
    kind = compat.kind_of(dataset)
    if kind in ("Take", "Skip", "Repeat"):
        count = int(compat.count_of(dataset))
        return count < 0 if kind == "Take" else count == (0 if kind == "Skip" else 1)
    return kind in ("Map", "ParallelMap") and _returns_its_rows(compat.traced_function_of(dataset))


def _returns_its_rows(function: Any) -> bool:
    if function is None or function.captured_inputs or len(function.inputs) != len(function.outputs):
        return False
    for given, returned in zip(function.inputs, function.outputs, strict=True):
        if behind_identities(returned) is not given:
            return False
    return not any(compat.has_state(one.type) for one in function.graph.get_operations())


def behind_identities(tensor: Any) -> Any:
    """What `tensor` of a traced function is, without operations that return what they are given."""
    while tensor.op.type == "Identity":
        [tensor] = tensor.op.inputs
    return tensor
