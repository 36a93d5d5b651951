"""Segments in ``/dev/shm`` that killed workers would leave behind.

Ranks take the names of their segments away right after MPI stands, so only a worker that dies before that
moment leaves one: 2 to 3 MB of memory that no process owns, until the next boot.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

_DIRECTORY = Path("/dev/shm")
_OURS = ("mpich_shm_", "ucx_")
"""How the names of MPICH's and its transport's segments begin; a script's own are not ours to remove."""


def mapped_segments(pids: Iterable[int]) -> frozenset[Path]:
    """The segments of MPI that the processes `pids` map now; to be asked before they are killed."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError), Path(f"/proc/{pid}/maps").open() as maps:
            for line in maps:
                _, separator, name = line.rstrip("\n").partition(f" {_DIRECTORY}/")
                if separator and name.startswith(_OURS):  # "x (deleted)": there is no such file
                    found.add(_DIRECTORY / name)
    return frozenset(found)


def remove_segments(segments: Iterable[Path]) -> None:
    """Removes `segments`; one that is gone is no error."""
    for path in segments:
        with contextlib.suppress(OSError):
            path.unlink()
