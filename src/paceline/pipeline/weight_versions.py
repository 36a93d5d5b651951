"""Weight stashing (PipeDream, SOSP 2019): the versions of a stage's weights that batches under way compute with.

    version 1 is read ──► batch 1: F ........ B     holds the tensors of version 1
                               update: the variables get version 2, in memory of their own

A version is the tensors that were read from the variables. No operation of TensorFlow's writes into the memory of a
variable while such a tensor is held, so a version costs memory from the update after it to its last use.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


class WeightVersions:
    """Those of one stage, while it walks a plan.

    Args:
        weights: Keras variables that are trained.
        last_uses: By version, where in the plan something is computed with it for the last time.
    """

    def __init__(self, weights: Sequence[Any], last_uses: Mapping[int, int]) -> None:
        self._weights, self._last_uses = weights, last_uses
        self._newest = 0
        self.held: dict[int, dict[int, Any]] = {}
        """By version, by the identity of a variable, its value then."""

    def values(self, version: int, variables: Sequence[Any]) -> list[Any]:
        """What `variables` were in a version that is not yet forgotten."""
        held = self.held.setdefault(version, {}) if version == self._newest else self.held[version]
        if not held:
            held.update((id(one), tf.convert_to_tensor(one._value)) for one in self._weights)
        return [held[id(one)] for one in variables]

    def make_next(self, place: int) -> None:
        """The variables are about to change, at this place of the plan: forgets what nobody uses behind it."""
        if self._last_uses.get(self._newest, -1) > place:
            self.values(self._newest, [])
        self.held = {version: held for version, held in self.held.items() if self._last_uses[version] > place}
        self._newest += 1
