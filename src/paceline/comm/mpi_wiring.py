"""Wiring MPI up without `mpiexec`: what must be in place before MPI initialises itself, which its import does.

Light: a worker arms its wiring at start, whether or not its script ever talks.
"""

import logging
import os
from types import ModuleType

from paceline.comm import segments
from paceline.comm.rounds import WINDOW_BYTES
from paceline.importing import after_import

_LOGGER = logging.getLogger(__name__)

_MPICH_SEGMENT_BYTES = 6 << 20
"""What MPICH 5 with UCX maps per rank (2 to 3 MB measured), with a margin."""


class MpiWiring:
    """What MPI must be told in this process before it initialises itself, which happens when it is imported.

    A script may import mpi4py itself, before or after it makes a strategy: with the wiring armed, its
    ``MPI.COMM_WORLD`` is the world of the job.

    Args:
        pmi_fd: Descriptor of the socket on which the watcher answers PMI-1; MPI closes it at the end.
        rank: The rank that the watcher will give.
        size: The world size that the watcher will give.
    """

    def __init__(self, pmi_fd: int, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._variables = {"PMI_FD": str(pmi_fd), "PMI_RANK": str(rank), "PMI_SIZE": str(size)}
        self._segments_before: frozenset[str] = frozenset()
        self.roomy = True
        """Whether `/dev/shm` has room for all ranks; known once MPI was imported."""

    def arm(self) -> None:
        """Arranges for MPI's import, whoever does it. Idempotent by way of MPI's initialising once."""
        after_import("mpi4py", self._before_initialisation)
        after_import("mpi4py.MPI", self._after_initialisation)

    def _before_initialisation(self, mpi4py: ModuleType) -> None:
        mpi4py.rc.thread_level = "serialized"
        mpi4py.rc.finalize = False  # ranks leave through Communicator.close, or in a hurry without it
        self._segments_before = segments.mapped_segments()
        self.roomy = segments.free_bytes() >= self.size * (_MPICH_SEGMENT_BYTES + WINDOW_BYTES)
        # UCX would print a backtrace of its own and wait for a debugger on a fault; Python's faulthandler is enough.
        os.environ.setdefault("UCX_HANDLE_ERRORS", "none")
        if not self.roomy:
            _LOGGER.warning(
                "/dev/shm has only %d MB free: %d ranks talk over TCP on this host instead of shared memory, which "
                "is slower. Give the container more (docker run --shm-size=1g).",
                segments.free_bytes() >> 20,
                self.size,
            )
            os.environ.setdefault("UCX_TLS", "tcp,self")
            os.environ.setdefault("MPIR_CVAR_NOLOCAL", "1")
        os.environ.update(self._variables)

    def _after_initialisation(self, mpi: ModuleType) -> None:
        del mpi
        for name in self._variables:  # a child of this process that uses MPI must not speak in its name
            os.environ.pop(name, None)

    def forget_segments(self) -> None:
        """Takes the names of the segments away that MPI has mapped here. Every rank must have mapped them."""
        segments.unlink_segments(segments.mapped_segments() - self._segments_before)
