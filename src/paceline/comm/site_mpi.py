"""Joining the world of an MPI launcher that is not Paceline's: ``mpiexec -n 4 python train.py``.

The launcher has wired MPI up and watches the processes; nothing of Paceline's stands beside them. A rank that fails
says why and aborts the world, for the others would wait for it in a collective.
"""

import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from paceline.cluster import job_options
from paceline.cluster.job_directory import remove_job_directory
from paceline.cluster.job_options import JobOptions
from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.mpi_launchers import AnnouncedWorld
from paceline.cluster.options import read_variables
from paceline.cluster.spec import WORKER, Address, ClusterSpec, Task
from paceline.comm.departure import Departure
from paceline.comm.group import Group
from paceline.comm.mpi_start import start_mpi
from paceline.comm.mpi_wiring import MpiWiring
from paceline.comm.world import World, enter_world
from paceline.errors import ConfigurationError
from paceline.observe.failure import log_with_rank
from paceline.wire import versions as compared_versions
from paceline.wire.codec import Decoder, Record, encode

_SEED_BITS = 31
_FIRST_PORT = 2222
_SECONDS_TO_FORWARD = 0.3
"""A launcher that hears of an end hands on no more of what was printed (Slurm, PMI2): the reason must be through."""


class _Introduction(Record, frozen=True):
    """What a rank tells the others first."""

    versions: dict[str, str]
    """Name and version of each program that all ranks must share."""
    seed: int
    """That this rank proposes; the chief's wins."""
    local_rank: int
    hostname: str = msgspec.field(default_factory=socket.gethostname)
    job_id: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))


def join_site_mpi(
    announced: AnnouncedWorld, variables: Mapping[str, str], versions: dict[str, str], departure: Departure
) -> World:
    """Makes this process a member of the launcher's world. Collective, blocks.

    Args:
        announced: What the launcher says; two ranks or more.
        variables: The environment. Read: PACELINE_ALLOW_MISMATCH.
        versions: Name and version of each library that all ranks must share.
        departure: Already watching the end of this process; is told the world.

    Raises:
        ConfigurationError: MPI knows another world than the launcher announces, or the ranks' versions differ.
    """
    wiring = MpiWiring(None, announced.rank, announced.size, announced.num_local)
    mpi = wiring.initialise()
    if mpi.COMM_WORLD.Get_size() == 1:
        wiring.forget_segments()
    _refuse_contradiction(announced, mpi)
    group = start_mpi(wiring)
    host = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    introductions = _introduce(group, _Introduction(versions, secrets.randbits(_SEED_BITS), host.Get_rank()))
    if not read_variables(JobOptions, variables, "allow_mismatch").allow_mismatch:
        _refuse_differences(introductions)
    chief = introductions[0]
    task = Task(WORKER, announced.rank)
    identity = WorkerIdentity(
        task=task,
        rank=announced.rank,
        world_size=announced.size,
        local_rank=host.Get_rank(),
        local_world_size=host.Get_size(),
        generation=1,
        job_id=chief.job_id,
        seed=chief.seed,
    )

    def leave() -> None:
        if identity.local_rank == 0:  # MPI's end was a meeting of all: nobody uses the directory any more
            remove_job_directory(identity.job_id)

    def abandon(exit_code: int) -> None:
        remove_job_directory(identity.job_id)
        time.sleep(_SECONDS_TO_FORWARD)
        mpi.COMM_WORLD.Abort(exit_code)

    world = World(
        identity,
        connect=lambda: group,
        leave=leave,
        abandon=abandon,
        place=lambda: (_cluster(introductions), task),
    )
    enter_world(world)
    departure.world = world
    log_with_rank(world.rank, world.size)
    return world


def _introduce(group: Group, own: _Introduction) -> list[_Introduction]:
    """Every rank's introduction, in rank order. Collective; JSON, because nothing that came in is executed."""
    decode = Decoder[_Introduction](_Introduction)
    return [decode(data.tobytes()) for data in group.all_gather(np.frombuffer(encode(own), np.uint8))]


def _cluster(introductions: Sequence[_Introduction]) -> ClusterSpec:
    """The world as TF_CONFIG would describe it. Nobody listens on its ports: MPI has its own."""
    return ClusterSpec({WORKER: tuple(Address(one.hostname, _FIRST_PORT + one.local_rank) for one in introductions)})


def _refuse_contradiction(announced: AnnouncedWorld, mpi: Any) -> None:
    """A launcher of another MPI than this Python's starts N worlds of one rank, each of which would train alone."""
    rank, size = mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size()
    if (rank, size) == (announced.rank, announced.size):
        return
    library = mpi.Get_library_version().strip().partition("\n")[0].strip("\0")
    rank_variable, size_variable = announced.variables
    raise ConfigurationError(
        f"{announced.launcher} started {announced.size} processes ({size_variable}={announced.size}), and this "
        f"is number {announced.rank} ({rank_variable}). But MPI in this process reports rank {rank} of {size}. "
        f"Probably the MPI library of this Python ({library}) does not belong to this launcher, or the "
        "launcher's variables or sockets did not reach this process. Start the script with the `mpiexec` of "
        "this Python (the mpich package installs it), with `srun` alone, or with `paceline run --workers N`. "
        "[mpi-world]"
    )


def _refuse_differences(introductions: Sequence[_Introduction]) -> None:
    """All ranks have all introductions, so all refuse alike."""
    different = [
        text
        for rank, one in enumerate(introductions)
        for text in compared_versions.differences(one.versions, f"rank {rank}", introductions[0].versions, "rank 0")
    ]
    if different:
        raise ConfigurationError(
            f"the versions differ between ranks: {'; '.join(different)}. Install the same versions everywhere, "
            f"or set {job_options.ALLOW_MISMATCH}=1 to run with different versions. [hosts-differ]"
        )
