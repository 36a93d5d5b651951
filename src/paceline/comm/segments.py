"""Files in `/dev/shm`: none of ours may outlive us, and a small one must be noticed before it is written into.

MPICH and its transports map segments there. Once every rank has mapped them, their names are of no use: unlinked, the
memory lives exactly as long as the processes, also through `kill -9`.
"""

import contextlib
from pathlib import Path

from paceline.cluster.shared_memory import DIRECTORY


def mapped_segments() -> frozenset[str]:
    """Paths of the files in `/dev/shm` that this process maps or holds open, and that still have a name."""
    found = set()
    with contextlib.suppress(OSError), Path("/proc/self/maps").open() as maps:
        for line in maps:
            _, _, path = line.rstrip("\n").partition(str(DIRECTORY))
            if path and not path.endswith(" (deleted)"):
                found.add(f"{DIRECTORY}{path}")
    for descriptor in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            target = str(descriptor.readlink())
            if target.startswith(f"{DIRECTORY}/") and not target.endswith(" (deleted)"):
                found.add(target)
    return frozenset(found)


def unlink_segments(paths: frozenset[str]) -> None:
    """Takes the names away; a peer that was faster is no error."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            Path(path).unlink()
