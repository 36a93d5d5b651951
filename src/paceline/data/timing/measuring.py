"""What profiles measure with: how fast one way is beside another, and how much of the time is waiting.

    time on the wall   ├── computes: processor time ──┼── is kept from a core by others ──┼── waits ──┤

Who waits (for a disk, the network, another process, a lock) keeps no core busy: more calls at a time help, more cores
do not. What others on the host take is no part of either.
"""

import contextlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 3
WORTH_A_LINE = 1.1
"""How many times faster a change must be."""

Speed = Callable[[Any], float]
"""Goes through data for a while. Returns rows, batches or steps a second: only ratios of them count."""


def gain(speed: Speed, data: Any, changed: Any) -> float:
    """How many times as fast `changed` is as `data`, in turn."""
    return statistics.median(speed(changed) / speed(data) for _ in range(ROUNDS))


class Waiting:
    """From now on, how much of the time is waiting, of what one thread or several in turn do.

    waiting = Waiting()
    …
    waiting.share()
    """

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._computed = time.process_time()
        self._queued = _queued_seconds()

    def share(self) -> float:
        """Of the time since then, without what others have kept this process from a core."""
        elapsed, computed = time.perf_counter() - self._begun, time.process_time() - self._computed
        queued = sum(seconds - self._queued.get(thread, 0.0) for thread, seconds in _queued_seconds().items())
        return share_of_waiting(elapsed, computed, queued)


def share_of_waiting(elapsed: float, computed: float, queued: float) -> float:
    """Of seconds on the wall, some of which threads have computed, and were ready to, but had no core; pure.

    >>> share_of_waiting(4.0, 1.0, 0.0), share_of_waiting(4.0, 1.0, 2.0), share_of_waiting(4.0, 6.0, 0.0)
    (0.75, 0.5, 0.0)
    """
    waited = max(0.0, elapsed - computed - queued)
    return waited / (waited + computed) if waited else 0.0


def _queued_seconds() -> dict[str, float]:
    """For each thread of this process, how long it was ready to run, but had no core; empty: Linux does not say."""
    found = {}
    for thread in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # a thread that has ended, or other fields
            found[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found
