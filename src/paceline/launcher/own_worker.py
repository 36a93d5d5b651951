"""A watchdog's hold on its worker: whether it lives, and how it is ended."""

import os
import signal

from paceline.rendezvous.loop import Callback, Loop

KILL_AFTER_SECONDS = 2.0
"""How long after SIGTERM comes SIGKILL: TensorFlow's multi-worker runtime swallows the first."""


class OwnWorker:
    """The worker, which is this process's parent: a signal can never reach another process with its number.

    Args:
        pid: Its process number.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def is_alive(self) -> bool:
        """Whether it still runs: an orphan gets another parent at once."""
        return os.getppid() == self._pid

    def end(self, loop: Loop, grace_seconds: float, on_survival: Callback) -> None:
        """Sends SIGTERM after `grace_seconds`, then SIGKILL; `on_survival` if neither helps."""
        killed = grace_seconds + KILL_AFTER_SECONDS
        loop.call_later(grace_seconds, lambda: self._signal(signal.SIGTERM))
        loop.call_later(killed, self.kill)
        loop.call_later(killed + KILL_AFTER_SECONDS, lambda: on_survival() if self.is_alive() else None)

    def kill(self) -> None:
        """Sends SIGKILL if it is alive."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive():
            os.kill(self._pid, number)
