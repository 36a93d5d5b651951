"""What the watcher hears of a `fit`: how far it is, often enough to notice a hang, and exactly when it fails."""

import time

from paceline.comm.world import World
from paceline.rendezvous.channel import Progress

_INTERVAL_SECONDS = 0.05


class Pulse:
    """Tells the watcher of this process's steps.

    Args:
        world: Whose line to the watcher is used.
        step: Optimizer steps of the job before this `fit`.
    """

    def __init__(self, world: World, step: int) -> None:
        self.step = step
        """Optimizer steps of the job so far."""
        self.epoch = 0
        self._world = world
        self._steps_in_epoch = 0
        self._told_at = 0.0

    def epoch_begun(self, epoch: int) -> None:
        """Steps are counted from 0 again."""
        self.epoch, self._steps_in_epoch = epoch, 0

    def stepped(self, end_step: int) -> None:
        """The step with this number in its epoch (from 0) has ended."""
        self.step += end_step + 1 - self._steps_in_epoch
        self._steps_in_epoch = end_step + 1

    def beat(self) -> None:
        """A step of training or validation has ended; said at most every `_INTERVAL_SECONDS`."""
        now = time.monotonic()
        if now - self._told_at >= _INTERVAL_SECONDS:
            self._told_at = now
            self.tell()

    def tell(self) -> None:
        """Says it now: the exact step tells an error that comes again from one that does not."""
        self._world.tell(Progress(self.step, self.epoch))
