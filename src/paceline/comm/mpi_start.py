"""Starting MPI in this process, wired up by its agent (no `mpiexec`), and choosing how to talk on it.

agent                                  this rank
  PMI socket ◄──────────────────────── MPI_Init: rank? size? addresses of the others?
                                       barrier, then the segments in /dev/shm lose their names
                                       all ranks on one host? ─► windows of shared memory, else MPI alone
"""

from typing import Any

import numpy as np

from paceline.cluster.job_directory import free_bytes
from paceline.comm.group import Array, Group, Reduction
from paceline.comm.mpi import MpiGroup, one_at_a_time
from paceline.comm.mpi_wiring import MpiWiring, mapped_segments, unlink_segments
from paceline.comm.peer_memory import peers_of
from paceline.comm.shared_memory import SharedMemoryGroup
from paceline.comm.transfers import WINDOW_BYTES


def start_mpi(wiring: MpiWiring) -> Group:
    """Initialises MPI if that has not happened, and returns the group of all ranks. Collective.

    Args:
        wiring: This rank's, armed.

    Raises:
        RuntimeError: MPI came up with another world: something initialised it before the wiring was armed.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD.Dup()
    if (world.Get_rank(), world.Get_size()) != (wiring.rank, wiring.size):
        raise RuntimeError(
            f"MPI started as rank {world.Get_rank()} of {world.Get_size()}, but Paceline expected rank "
            f"{wiring.rank} of {wiring.size}. Either MPI was initialised too early (in a script started by hand, "
            "import mpi4py after the strategy is created), or another launcher started it. [mpi-world]"
        )
    group = _best_over(MpiGroup(world, MPI.Finalize, _best_of_part), wiring.roomy)
    # Every peer has mapped what it needs: talk once to each, so that connections made on first use are made, too.
    world.Alltoall(np.zeros(wiring.size, np.int64), np.empty(wiring.size, np.int64))
    group.barrier()
    wiring.forget_segments()
    group.barrier()
    return group


def _best_of_part(group: MpiGroup) -> Group:
    """As `_best_over`, in a world that stands: what it takes of `/dev/shm` must lose its name here."""
    has_room = free_bytes() >= group.size * WINDOW_BYTES
    before = mapped_segments()
    best = _best_over(group, has_room)
    if best is not group:
        group.barrier()
        unlink_segments(mapped_segments() - before)
        group.barrier()
    return best


def _best_over(group: MpiGroup, has_room: bool) -> Group:
    """Shared-memory windows if all ranks of `group` are on one host that has room, else `group`. Collective."""
    from mpi4py import MPI

    with one_at_a_time:
        host = group.ranks.Split_type(MPI.COMM_TYPE_SHARED)
        is_on_one_host = host.Get_size() == group.size
    # Each rank looked at /dev/shm at another moment: where one saw too little room, none makes windows.
    [all_agree] = group.all_reduce([np.array(is_on_one_host and has_room)], Reduction.MIN)
    if not all_agree:
        with one_at_a_time:
            host.Free()
        return group
    with one_at_a_time:
        window: Any = MPI.Win.Allocate_shared(WINDOW_BYTES, 1, comm=host)
        memory: list[Array] = [np.frombuffer(window.Shared_query(rank)[0], np.uint8) for rank in range(group.size)]
        window.Lock_all(MPI.MODE_NOCHECK)  # while the group lives: Sync is defined inside such an epoch only
        host.Free()

    def fence() -> None:
        with one_at_a_time:
            window.Sync()

    def progress() -> None:
        with one_at_a_time:
            group.ranks.Iprobe()

    def free() -> None:
        with one_at_a_time:
            window.Unlock_all()
            window.Free()

    return SharedMemoryGroup(group, memory, fence, progress, free, peers_of(group))
