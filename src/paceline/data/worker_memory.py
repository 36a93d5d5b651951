"""The memory that a worker may use. Asks this host."""

import functools

from paceline.cluster.control_groups import memory_bytes
from paceline.comm.world import current_world


def memory_share() -> int:
    """Bytes: the host's, or its control group's, divided by the workers on the host."""
    return _memory_of_host() // current_world().identity.local_world_size


@functools.cache
def _memory_of_host() -> int:
    return memory_bytes()
