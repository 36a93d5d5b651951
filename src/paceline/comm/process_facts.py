"""What the kernel says of this process, for the reasons why a rank is slow. Asks this host, once a second."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from paceline.cluster.control_groups import group_files

_SECOND = 1_000_000_000


class Facts(NamedTuple):
    """Nanoseconds of this process. What the kernel does not say is 0."""

    wall: int = 0
    """Between two readings."""
    cpu: int = 0
    """All threads have computed, together."""
    queued: int = 0
    """All threads have waited for a core, together."""
    throttled: int = 0
    """Its control group, or one around it, had used up its quota."""
    memory: int = 0
    """Something in its control group waited for memory."""


NUM_FACTS = len(Facts._fields)
_NONE = Facts()


def read_facts() -> Facts:
    """All of them, since the process began or longer."""
    return Facts(time.perf_counter_ns(), time.process_time_ns(), _queued(), _throttled(), _memory())


class ProcessFacts:
    """What has been added since the last time that somebody asked, read once a second.

    Args:
        read: Reads them.
        now: Nanoseconds.
    """

    def __init__(self, read: Callable[[], Facts] = read_facts, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._read = read
        self._now = now
        self._last = _NONE
        self._read_at = 0

    def begin(self) -> None:
        """What was before counts no more."""
        self._last, self._read_at = self._read(), self._now()

    def since_last(self) -> Facts:
        """What has been added; zeros within a second of the last reading."""
        if self._now() - self._read_at < _SECOND:
            return _NONE
        before = self._last
        self.begin()
        return Facts(*(max(now - then, 0) for now, then in zip(self._last, before, strict=True)))


def _queued() -> int:
    """Threads that have ended are forgotten by the kernel: the difference may be too small, or below 0."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.scandir("/proc/self/task"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                total += int(Path(thread.path, "schedstat").read_text().split()[1])
    return total


def _throttled() -> int:
    longest = 0
    for text in group_files("cpu", "cpu.stat", "cpu.stat"):
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name in ("throttled_usec", "throttled_time"):  # of version 2, in microseconds; of version 1
                longest = max(longest, int(value) * (1000 if name == "throttled_usec" else 1))
    return longest


def _memory() -> int:
    for text in group_files("memory", "memory.pressure", "memory.pressure"):
        for line in text.splitlines():
            if line.startswith("some"):
                return int(line.rpartition("total=")[2]) * 1000
    return 0
