"""The memory of a worker: how much it may use, and how much it does. Asks this host."""

import functools
import os
from pathlib import Path

from paceline.cluster.control_groups import memory_bytes
from paceline.comm.world import current_world

_STATUS = Path("/proc/self/statm")


def memory_share() -> int:
    """Bytes: the host's, or its control group's, divided by the workers on the host."""
    return _memory_of_host() // current_world().identity.local_world_size


def resident_bytes() -> int:
    """Bytes that this process holds; 0 where the host does not say."""
    try:
        return int(_STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@functools.cache
def _memory_of_host() -> int:
    return memory_bytes()
