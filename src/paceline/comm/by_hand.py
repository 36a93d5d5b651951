"""Joining a world from a process that no launcher started, and leaving it when the process ends.

join ─► agent beside this process, all ranks are there, MPI ─► script goes on
                                                            ├─ ends well ── exit handler: meet the others, leave
                                                            └─ exception ── hook: tell the agent, then leave at once
                                                               (MPI_Finalize would wait for the others)
"""

import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping

from paceline.cluster import environment
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.cluster.peer_interface import devices_towards
from paceline.cluster.spec import ClusterSpec, Task
from paceline.comm.agent_sink import AgentSink
from paceline.comm.departure import Departure
from paceline.comm.mpi_start import start_mpi
from paceline.comm.mpi_wiring import MpiWiring
from paceline.comm.world import World, enter_world
from paceline.errors import EXIT_UNAVAILABLE
from paceline.events.bus import bus
from paceline.leaving import exit_now
from paceline.observe.failure import log_with_rank, write_stacks_when_asked
from paceline.rendezvous.attaching import Membership, join_by_hand

START_TIMEOUT_SECONDS, LAUNCHED_START_TIMEOUT_SECONDS = 300.0, 60.0
"""How long a process waits for its peers, started by hand or by `paceline run`, without ``--start-timeout``."""

_SEED_BITS = 31


def start_timeout_seconds(variables: Mapping[str, str]) -> float:
    """How long this process waits for others of its job.

    Variables read: PACELINE_START_TIMEOUT, PACELINE_RANK.
    """
    given = read_variables(JobOptions, variables, "start_timeout_seconds").start_timeout_seconds
    default = LAUNCHED_START_TIMEOUT_SECONDS if environment.RANK in variables else START_TIMEOUT_SECONDS
    return default if given is None else given


def join_world(
    cluster: ClusterSpec,
    task: Task,
    start_timeout_seconds: float,
    versions: dict[str, str],
    departure: Departure,
    arrange: Callable[[World], None] = lambda _: None,
) -> World:
    """Makes this process a member of `cluster`; returns when the group stands. Collective, blocks.

    Args:
        cluster: The whole job.
        task: This process's own place in it.
        start_timeout_seconds: How long to wait for the others.
        versions: Name and version of each library that all ranks must share.
        departure: Already watching the end of this process; is told the world.
        arrange: Given the world before its ranks communicate.

    Raises:
        StartError: some rank never came.
        ConfigurationError: the ranks' clusters or versions differ, or a setting is wrong.
    """
    membership = join_by_hand(cluster, task, versions, secrets.randbits(_SEED_BITS), start_timeout_seconds)
    identity = membership.identity
    if devices := devices_towards(cluster.address_of_rank(rank).host for rank in range(cluster.world_size)):
        os.environ.setdefault("UCX_NET_DEVICES", devices)
    wiring = MpiWiring(membership.pmi_socket.detach(), identity.rank, identity.world_size, identity.local_world_size)
    wiring.arm()
    has_left = threading.Event()
    world = World(
        identity,
        connect=lambda: start_mpi(wiring),
        line=membership.line,
        leave=has_left.set,
        place=lambda: (cluster, task),
    )
    enter_world(world)
    bus.subscribe(AgentSink(world.tell))
    departure.world = world
    log_with_rank(world.rank, world.size)
    write_stacks_when_asked()
    _listen_to_agent(world, membership, has_left)
    arrange(world)
    world.group.barrier()
    return world


def _listen_to_agent(world: World, membership: Membership, has_left: threading.Event) -> None:
    """From now on this process answers its agent, and ends with it: nobody else would end it when a peer dies.

    A thread listens, because the main thread may sit in TensorFlow.
    """
    pid = os.getpid()

    def listen() -> None:
        if not world.answer_agent() or has_left.is_set() or os.getpid() != pid:
            return
        print(
            f"paceline: rank {world.rank} ends, because the agent beside this worker (process {membership.agent.pid}) "
            "is gone, which connected this rank to the job. Start all ranks again. [agent-lost]",
            file=sys.stderr,
            flush=True,
        )
        exit_now(EXIT_UNAVAILABLE)

    threading.Thread(target=listen, name="paceline listens to its agent", daemon=True).start()
