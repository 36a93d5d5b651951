"""The script's dataset with one stage changed: everything behind the stage is made again over the new rows.

What has been traced is called again, as in `own_rows.py`; shuffles draw other orders. A stage that is not known here
cannot be made again.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.own_rows.orders import made_again
from paceline.data.own_rows.staying_maps import MAPS

Change = Callable[[Any], Any]
"""From the source of a stage, made again or the script's own, to what stands in the place of the stage."""


class UnknownStageError(ValueError):
    """The dataset has a stage that cannot be made again; the message names its kind."""


def with_change(dataset: Any, stage: Any, change: Change) -> Any:
    """`dataset`, in which `change` stands in the place of `stage`.

    Raises:
        UnknownStageError: behind the stage.
    """
    if dataset is stage:
        [source] = compat.inputs_of(stage)
        return change(source)
    sources = compat.inputs_of(dataset)
    again = [with_change(one, stage, change) for one in sources]
    if all(one is before for one, before in zip(again, sources, strict=True)):
        return dataset
    return _made_again(dataset, again)


def _made_again(one: Any, sources: list[Any]) -> Any:
    kind = compat.kind_of(one)
    if kind in MAPS:
        return mapped_again(one, compat.options_of_map(one), *sources)
    if kind == "Cache" and not compat.writes_file(one):
        return sources[0].cache()
    if kind == "Shuffle":
        return sources[0].shuffle(compat.shuffle_buffer_of(one))
    if (again := made_again(one, sources)) is None:
        raise UnknownStageError(kind)
    return again


def mapped_again(one: Any, options: dict[str, Any], rows: Any) -> Any:
    """The map `one` over other rows, with these options of `Dataset.map`.

    Raises:
        UnknownStageError: its rows are not dense tensors.
    """
    function, spec = compat.traced_function_of(one), one.element_spec
    if function is None or not all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(spec)):
        raise UnknownStageError(compat.kind_of(one))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(*row: Any) -> Any:
        return tf.nest.pack_sequence_as(spec, function(*tf.nest.flatten(row)))

    return rows.map(call, **options)


def interleaved_again(one: Any, options: dict[str, Any], rows: Any) -> Any:
    """The interleave `one` over other rows, with these options of `Dataset.interleave`.

    Raises:
        UnknownStageError: it has none that are known here.
    """
    given = compat.options_of_interleave(one)
    if given is None:
        raise UnknownStageError(compat.kind_of(one))
    function, cycle, block = given

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(*row: Any) -> Any:
        [variant] = function(*tf.nest.flatten(row))
        return tf.data.experimental.from_variant(variant, one.element_spec)

    return rows.interleave(call, cycle_length=cycle, block_length=block, **options)
