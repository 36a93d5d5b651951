"""Decides when the chief may begin another step; pure.

A step of `steps_per_execution=k` is an execution of k steps: one worker takes them in a row.
"""

from collections.abc import Collection
from dataclasses import dataclass

STEPS_AHEAD = 2
"""Executions for each worker that have begun and not ended: one runs, and the next waits for the worker to be free."""


@dataclass(frozen=True)
class Begun:
    """An execution that has begun and not ended."""

    num_steps: int
    ended_before: int
    """Steps that had ended when it began."""


@dataclass(frozen=True)
class StalenessBound:
    """The limits under which executions begin.

    Args:
        most_at_once: Executions that may have begun and not ended.
        max_staleness: How many steps of others may update the variables between a step's reading and its own update;
            None: any number.
    """

    most_at_once: int
    max_staleness: int | None = None

    def admits(self, num_steps: int, running: Collection[Begun], num_ended: int) -> bool:
        """Whether an execution of `num_steps` may begin now.

        In the worst case, a running step reads first and writes last. The steps of others that have ended since it
        began, all that are running, and the new ones then lie between.

        Args:
            num_steps: Of the execution that is to begin.
            running: Those that have begun and not ended.
            num_ended: Steps that have ended, of this fit.
        """
        if not running:
            return True
        if len(running) >= self.most_at_once:
            return False
        if self.max_staleness is None:
            return True
        in_flight = num_steps + sum(one.num_steps for one in running)
        worst = max(num_ended - one.ended_before + in_flight - one.num_steps for one in running)
        return max(worst, in_flight - num_steps) <= self.max_staleness
