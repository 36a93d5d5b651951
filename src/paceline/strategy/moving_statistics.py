"""Variables that each rank moves by its own rows (BatchNormalization's moving averages), made equal before a step ends.

They move linearly, so the mean over ranks, weighed by rows, is what one rank would have that moved by the weighed mean
of the ranks' batch statistics. After each step all ranks hold the same values: whoever saves at whatever moment saves
the model of all.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from paceline.strategy.graph_collectives import GraphCollectives

if TYPE_CHECKING:
    from paceline.strategy.replica_context import StepRows


class MovingStatistics:
    """What one step has moved and not yet averaged.

    Args:
        rows: The step's row counts.
        size: Number of ranks.
        collectives: Sum over ranks.
    """

    def __init__(self, rows: "StepRows", size: int, collectives: GraphCollectives) -> None:
        self._rows = rows
        self._size = size
        self._collectives = collectives
        self._moved: dict[int, Any] = {}

    def note(self, variables: Iterable[Any]) -> None:
        """These floating variables have been moved by this rank's rows; all ranks note the same ones."""
        self._moved.update({id(variable): variable for variable in variables})

    def summed_with(self, tensors: Sequence[Any]) -> list[Any]:
        """The sums of `tensors` over ranks, in one message with the variables noted so far. Collective."""
        variables = list(self._moved.values())
        self._moved.clear()
        parts = [self._share_of(tf.convert_to_tensor(variable)) for variable in variables]
        totals = self._collectives.all_reduce([*tensors, *parts]) if tensors or parts else []
        for variable, total in zip(variables, totals[len(tensors) :], strict=True):
            variable.assign(total)
        return totals[: len(tensors)]

    def settle(self) -> None:
        """Averages what is left at the end of a step. Collective if anything is."""
        if self._moved:
            self.summed_with([])

    def _share_of(self, value: Any) -> Any:
        if not self._rows.known:
            return value / tf.cast(self._size, value.dtype)
        # No NaN: the statistics of no rows are not numbers, and count nothing.
        return tf.math.multiply_no_nan(value, self._rows.share(value.dtype))
