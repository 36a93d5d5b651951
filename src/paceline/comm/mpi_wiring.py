"""Wiring MPI up without `mpiexec`: what must be in place before MPI initialises itself, which its import does.

Light: a worker arms its wiring at start, whether or not its script ever talks.

MPICH and its transports map segments of `/dev/shm`. Once every rank has mapped them, their names are of no use:
unlinked, the memory lives exactly as long as the processes, also through `kill -9`.
"""

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from paceline.cluster import environment
from paceline.cluster.job_directory import DIRECTORY, free_bytes
from paceline.importing import after_import

_LOGGER = logging.getLogger(__name__)

_MPICH_SEGMENT_BYTES = 6 << 20
"""What MPICH 5 with UCX maps per rank (2 to 3 MB measured), with a margin."""

_OF_PMI = ("PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID")
"""A child of a rank that uses MPI must not speak in its name."""

_OF_PMIX = ("PMIX_NAMESPACE", "PMIX_RANK")
"""Set by Open MPI's `mpirun` and by Slurm's default at many sites. MPICH 5 as the wheel has it speaks no PMIx, and ends
the process when it sees them."""


class MpiWiring:
    """What MPI must be told in this process before it initialises itself, which happens when it is imported.

    A script may import mpi4py itself, before or after it makes a strategy: with the wiring armed, its
    ``MPI.COMM_WORLD`` is the world of the job.

    Args:
        pmi_fd: Descriptor of the socket on which the agent answers PMI-1; MPI closes it at the end. None: an MPI
            launcher has wired this process up.
        rank: The rank that the agent will give.
        size: The world size that the agent will give.
        num_local: How many of the ranks are on this host; None: unknown, so as if all were.
    """

    def __init__(self, pmi_fd: int | None, rank: int, size: int, num_local: int | None = None) -> None:
        self.rank = rank
        self.size = size
        self._num_local = size if num_local is None else num_local
        own = {"PMI_FD": str(pmi_fd), "PMI_RANK": str(rank), "PMI_SIZE": str(size)}
        self._variables = {} if pmi_fd is None else own
        self._segments_before: frozenset[str] = frozenset()
        self.roomy = True
        """Whether `/dev/shm` has room for all ranks of this host; known once MPI was imported."""

    def arm(self) -> None:
        """Arranges for MPI's import, whoever does it. Idempotent by way of MPI's initialising once."""
        after_import("mpi4py", self._before_initialisation)
        after_import("mpi4py.MPI", self._after_initialisation)

    def initialise(self) -> ModuleType:
        """Initialises MPI now, unless the script has; for a process that an MPI launcher has wired up.

        Returns:
            The module ``mpi4py.MPI``.
        """
        import mpi4py

        self._before_initialisation(mpi4py)
        mpi4py.rc.initialize = False  # first ask which MPI it is
        from mpi4py import MPI

        if not MPI.Is_initialized():
            if MPI.Get_library_version().startswith("MPICH"):
                _forget(_OF_PMIX)
            MPI.Init_thread(MPI.THREAD_SERIALIZED)
        self._after_initialisation(MPI)
        module: ModuleType = MPI
        return module

    def _before_initialisation(self, mpi4py: ModuleType) -> None:
        from paceline.comm.transfers import WINDOW_BYTES  # here: a worker that never talks does without

        mpi4py.rc.thread_level = "serialized"
        mpi4py.rc.finalize = False  # ranks leave through Group.close, or in a hurry without it
        self._segments_before = mapped_segments()
        # As the agent saw it before the first rank came, so that all ranks decide alike.
        free = int(os.environ.get(environment.FREE_SHARED_MEMORY) or free_bytes())
        self.roomy = free >= self._num_local * (_MPICH_SEGMENT_BYTES + WINDOW_BYTES)
        # UCX would print a backtrace of its own and wait for a debugger on a fault; Python's faulthandler is enough.
        os.environ.setdefault("UCX_HANDLE_ERRORS", "none")
        if not self.roomy:
            _LOGGER.warning(
                "/dev/shm has only %d MB free, so the %d ranks of this host communicate over TCP instead of "
                "shared memory, which is slower. Give the container more shared memory (docker run "
                "--shm-size=1g).",
                free >> 20,
                self._num_local,
            )
            os.environ.setdefault("UCX_TLS", "tcp,self")
            os.environ.setdefault("MPIR_CVAR_NOLOCAL", "1")
        if self._variables:
            _forget(_OF_PMIX)
        os.environ.update(self._variables)

    def _after_initialisation(self, mpi: ModuleType) -> None:
        del mpi
        _forget(_OF_PMI)

    def forget_segments(self) -> None:
        """Takes the names of the segments away that MPI has mapped here. Every rank must have mapped them."""
        unlink_segments(mapped_segments() - self._segments_before)


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


def _forget(names: Iterable[str]) -> None:
    for name in names:
        os.environ.pop(name, None)
