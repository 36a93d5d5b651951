"""Starting MPI in this process, wired up by whoever watches it (no `mpiexec`), and choosing how to talk on it.

    watcher (agent or watchdog)            this rank
      PMI socket ◄──────────────────────── MPI_Init: rank? size? addresses of the others?
                                           barrier, then the segments in /dev/shm lose their names
                                           all ranks on one host? ─► windows of shared memory, else MPI alone
"""

import logging
import os
from typing import Any

import numpy as np

from paceline.comm import segments
from paceline.comm.communicator import Communicator
from paceline.comm.mpi import MpiCommunicator
from paceline.comm.shared_memory import WINDOW_BYTES, SharedMemoryCommunicator

_LOGGER = logging.getLogger(__name__)

_MPICH_SEGMENT_BYTES = 6 << 20
"""What MPICH 5 with UCX maps per rank (2 to 3 MB measured), with a margin."""


def start_mpi(pmi_fd: int, rank: int, size: int) -> Communicator:
    """Initialises MPI and returns the group's communicator. Collective.

    Args:
        pmi_fd: Descriptor of the socket on which the watcher answers PMI-1; closed by MPI at the end.
        rank: The rank that the watcher will give.
        size: The world size that the watcher will give.

    Raises:
        RuntimeError: MPI already runs in this process with another world, or came up with one.
    """
    before = segments.mapped_segments()
    roomy = segments.free_bytes() >= size * (_MPICH_SEGMENT_BYTES + WINDOW_BYTES)
    wiring = {"PMI_FD": str(pmi_fd), "PMI_RANK": str(rank), "PMI_SIZE": str(size)}
    # UCX would print a backtrace of its own and wait for a debugger on a fault; Python's faulthandler is enough.
    os.environ.setdefault("UCX_HANDLE_ERRORS", "none")
    if not roomy:
        _LOGGER.warning(
            "/dev/shm has only %d MB free: %d ranks talk over TCP on this host instead of shared memory, which is "
            "slower. Give the container more (docker run --shm-size=1g).",
            segments.free_bytes() >> 20,
            size,
        )
        os.environ.setdefault("UCX_TLS", "tcp,self")
        os.environ.setdefault("MPIR_CVAR_NOLOCAL", "1")
    os.environ.update(wiring)
    try:
        import mpi4py

        mpi4py.rc.thread_level = "serialized"
        mpi4py.rc.finalize = False  # ranks leave through Communicator.close, or in a hurry without it
        from mpi4py import MPI
    finally:
        for name in wiring:  # a child of this process that uses MPI must not speak in its name
            os.environ.pop(name, None)
    world = MPI.COMM_WORLD.Dup()
    if (world.Get_rank(), world.Get_size()) != (rank, size):
        raise RuntimeError(
            f"MPI came up as rank {world.Get_rank()} of {world.Get_size()}, expected rank {rank} of {size}: MPI was "
            "initialised before Paceline (import mpi4py after the strategy is made), or by another launcher."
        )
    inner = MpiCommunicator(world)
    communicator = _with_windows(MPI, world, inner) if roomy else inner
    # Every peer has mapped what it needs: talk once to each, so that connections made on first use are made, too.
    world.Alltoall(np.zeros(size, np.int64), np.empty(size, np.int64))
    inner.barrier()
    segments.unlink_segments(segments.mapped_segments() - before)
    inner.barrier()
    return communicator


def _with_windows(mpi: Any, world: Any, inner: MpiCommunicator) -> Communicator:
    """Shared-memory windows if all ranks are on one host, else `inner`."""
    host = world.Split_type(mpi.COMM_TYPE_SHARED)
    on_one_host = world.allreduce(host.Get_size(), mpi.MIN) == world.Get_size()
    if not on_one_host:
        return inner
    window = mpi.Win.Allocate_shared(WINDOW_BYTES, 1, comm=host)
    memory = [np.frombuffer(window.Shared_query(rank)[0], np.uint8) for rank in range(world.Get_size())]
    return SharedMemoryCommunicator(inner, memory)
