"""How much shared memory this host has to give: containers often have 64 MB of `/dev/shm`. Asks the kernel."""

import os
from pathlib import Path

DIRECTORY = Path("/dev/shm")


def free_bytes() -> int:
    """Bytes that can still be written to `/dev/shm`; 0 where there is none."""
    try:
        status = os.statvfs(DIRECTORY)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
