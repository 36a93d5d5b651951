"""Which stages have a variable's value, where several models have the variable.

    whole.fit(...)         cut behind layer b: a and b are on stage 0, and their new values
    features.predict(...)  cut behind layer a: b is needed on stage 1    stage 0 ── value of b ──► stage 1
    whole.fit(...)         b is on stage 0 again                         stage 0 ◄── value of b ── stage 1

A value is where the model that runs needs it, and nowhere else: there is no second one that could fall behind. An
optimizer's slots stay with their model.
"""

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.group import Array, Group, Request
from paceline.pipeline.deferred_variables import materialize, release_value, return_value

_STAGES = "_paceline_stages"

_TAG = 32_001
"""Above those of any plan, and of saves."""


class VariableHomes:
    """The stages on which one model needs each of its variables.

    Args:
        stages_of: For each variable the stages, ascending; the same on all ranks, in the same order.
        pipeline: The stages.
        rank: This rank's in the job.
    """

    _latest: "weakref.ref[VariableHomes] | None" = None
    """Those of the model that has run last in this process."""

    def __init__(self, stages_of: Iterable[tuple[Any, tuple[int, ...]]], pipeline: Group, rank: int) -> None:
        self._stages_of, self._pipeline, self._rank = list(stages_of), pipeline, rank

    def bring(self) -> None:
        """Sees to it that each value is where this model needs it. Collective over the stages."""
        if VariableHomes._latest is not None and VariableHomes._latest() is self:
            return
        sent: list[tuple[Request[None], Array]] = []
        for variable, stages in self._stages_of:
            before = getattr(variable, _STAGES, None)
            if before is None:
                self._begin(variable, stages)
            elif before != stages:
                sent += self._move(variable, before, stages)
            object.__setattr__(variable, _STAGES, stages)
        for request, _ in sent:
            request.wait()
        VariableHomes._latest = weakref.ref(self)

    def _begin(self, variable: Any, stages: tuple[int, ...]) -> None:
        own = self._pipeline.rank
        if own in stages:
            materialize([variable])
        else:
            release_value(variable, stages[0], own, self._rank)

    def _move(
        self, variable: Any, before: tuple[int, ...], stages: tuple[int, ...]
    ) -> list[tuple[Request[None], Array]]:
        own, new = self._pipeline.rank, [stage for stage in stages if stage not in before]
        sent: list[tuple[Request[None], Array]] = []
        if own == before[0]:
            value = np.array(variable._value)
            sent = [(self._pipeline.send(value, stage, _TAG), value) for stage in new]
        elif own in new:
            dtype = tf.as_dtype(variable.dtype).as_numpy_dtype
            return_value(variable, self._pipeline.recv(variable.shape, dtype, before[0], _TAG).wait())
        if own not in stages:
            release_value(variable, stages[0], own, self._rank, returns=True)
        return sent
