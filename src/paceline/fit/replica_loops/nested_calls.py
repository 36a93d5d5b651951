"""Which of Keras's functions has called which, in a step of `strategy.run` that this thread takes or traces.

loss ─► loss            only the outermost is scaled (`losses.py`)
metric ─► loss          none is
assign_add ─► assign    only the outer one combines what ranks assign (`assignments.py`)
gamma ─► _cast_seed     each rank gets a seed of its own (`random_rows.py`)
"""

import threading
from typing import Any


class _NestedCalls(threading.local):
    """Those that this thread is in."""

    def __init__(self) -> None:
        self.gave_means: list[bool] = []
        """For each loss, the outermost first: whether one within it gave a mean over this rank's rows, no share."""
        self.metrics = 0
        """How many metrics: their losses are means over this rank's rows, too."""
        self.is_combined = False
        """Whether what a variable is assigned has been combined over ranks."""
        self.seed_step: Any = None
        """What a generator that draws other numbers on each rank adds to its seed."""

    @property
    def inside(self) -> bool:
        """Whether another loss, or a metric, has called the loss that is computed."""
        return len(self.gave_means) > 1 or self.metrics > 0

    def give_mean(self) -> None:
        """The loss that is computed gives one to that which has called it."""
        if len(self.gave_means) > 1:
            self.gave_means[-2] = True


nested_calls = _NestedCalls()
