"""How much of its time a stage of a pipeline waits, in place of keeping a core busy.

TensorFlow counts how long threads are in a stage, whatever they do there. So a stage is run here by itself, one call
after the other, over elements that lie in memory; where what is before it costs nothing to speak of, as it is.
"""

from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.indexed.index_source import source_of
from paceline.data.own_rows.staying_maps import MAPS
from paceline.data.timing.measuring import Waiting
from paceline.data.timing.rebuilding import UnknownStageError, interleaved_again, mapped_again

_ONLY_MEMORY = frozenset(
    ["Batch", "ParallelBatch", "PaddedBatch", "Shuffle", "Prefetch", "Repeat", "Take", "Skip", "Zip", "Options"]
)
"""Kinds that touch nothing but memory."""


def waits_of(one: Any, num_elements: int, *, is_first: bool) -> float | None:
    """The share of the time of a stage, without those before it, that is waiting; None: that cannot be told.

    Args:
        one: The dataset of the stage.
        num_elements: How many it is to make.
        is_first: Whether all stages before cost nothing to speak of.
    """
    alone = one
    if compat.kind_of(one) in _ONLY_MEMORY:
        return 0.0
    if source_of(one) is None and compat.inputs_of(one):
        try:
            alone = _alone(one, num_elements)
        except UnknownStageError:
            if not is_first:
                return None
    # All is read by TensorFlow, without Python in between. The threads of an iterator last as long as it does.
    iterator = iter(alone.take(num_elements).filter(_nothing))
    waiting = Waiting()
    next(iterator, None)
    return waiting.share()


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _nothing(*_: Any) -> Any:
    return tf.constant(False)


def _alone(one: Any, num_elements: int) -> Any:
    kind = compat.kind_of(one)
    if kind not in MAPS and compat.options_of_interleave(one) is None:
        raise UnknownStageError(kind)
    [source] = compat.inputs_of(one)
    held = source.take(num_elements).cache()
    again = mapped_again(one, {}, held) if kind in MAPS else interleaved_again(one, {}, held)
    for _ in held:
        pass
    return again
