"""The environment variables of each worker, from the job and the host's resources. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.cluster import environment, job_options
from paceline.cluster.communication import Communication
from paceline.cluster.job_directory import job_directory
from paceline.cluster.job_options import JobOptions
from paceline.cluster.launched import WorkerIdentity, slot_holders
from paceline.cluster.options import Use, read_variables, rows
from paceline.cluster.spec import DATA, EVALUATOR, ClusterSpec
from paceline.launcher.workers.host_resources import CoreShare

THREAD_COUNTS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
"""Where TensorFlow and numeric libraries read how many threads to start; the user's own value stays."""

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

UCX_NET_DEVICES = "UCX_NET_DEVICES"
"""Where MPI's transport reads which network interfaces it may use; the user's own value stays."""

_OF_OTHER_LAUNCHERS = {
    "RANK": environment.RANK,
    "WORLD_SIZE": environment.WORLD_SIZE,
    "LOCAL_RANK": environment.LOCAL_RANK,
    "LOCAL_WORLD_SIZE": environment.LOCAL_WORLD_SIZE,
}
"""By which scripts and libraries written for torchrun know their place. Paceline itself reads none of them. Only where
they are asked for: data libraries that see several ranks give each its share of the rows, which `fit` divides again."""

_OF_OPTIONS = frozenset(option.variable for option in rows(JobOptions))
_OF_RANKS = (*_OF_OTHER_LAUNCHERS, *(option.variable for option in rows(JobOptions) if option.use is Use.RANKS))
"""What holds for ranks only."""

_FOLLOWED = next(option.variable for option in rows(JobOptions) if option.attribute == "snapshot_dir")
"""Where an evaluator finds the snapshots of the ranks; it takes none."""

_HASH_SEEDS = 2**32
_MIG = "MIG-"


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What is decided about a worker before it starts."""

    identity: WorkerIdentity
    cores: CoreShare | None
    """None: not bound."""
    gpu: str | None
    """None: the host has none, and CUDA_VISIBLE_DEVICES stays as the user set it."""
    gpu_is_shared: bool = False
    """Whether another worker has the same one, or perhaps another MIG instance of it."""
    net_devices: str = ""
    """The network devices for MPI; empty: the job has one host, or MPI chooses."""


def plan_workers(
    identities: Sequence[WorkerIdentity],
    shares: Sequence[CoreShare] | None,
    gpus: Sequence[str],
    *,
    gpus_are_given: bool = False,
    net_devices: str = "",
) -> tuple[WorkerPlan, ...]:
    """Gives each of an agent's workers its cores (`shares`, in order) and its GPU; too few GPUs are shared in turn.

    Only those that a host's slots are for get cores and a GPU: ranks, or the workers beside parameter servers. Their
    chief and the servers work while workers wait for them, and on all cores; of a GPU TensorFlow would take all memory.

    Args:
        identities: The processes of this agent.
        shares: By slot; None: not bound.
        gpus: Those that this agent sees.
        gpus_are_given: Whether they were given to this agent, as a scheduler does. Then other agents of this machine
            have GPUs of their own, by the same names perhaps; else all agents share the machine's.
        net_devices: For MPI; empty: it chooses.
    """
    holders = slot_holders(identities)
    return tuple(
        WorkerPlan(
            identity=identity,
            cores=shares[holders.index(identity)] if shares is not None else None,
            gpu=gpus[identity.local_rank % len(gpus)] if gpus else None,
            gpu_is_shared=_are_shared(gpus, len(holders) if gpus_are_given else identity.local_world_size),
            net_devices=net_devices,
        )
        if identity in holders
        else WorkerPlan(identity, cores=None, gpu="" if gpus else None)
        for identity in identities
    )


def _are_shared(gpus: Sequence[str], num_workers: int) -> bool:
    if any(gpu.startswith(_MIG) for gpu in gpus):
        return num_workers > 1  # a name does not say of which GPU the instance is
    return 0 < len(gpus) < num_workers


def worker_environment(
    plan: WorkerPlan, cluster: ClusterSpec, inherited: Mapping[str, str], told: Mapping[str, str]
) -> dict[str, str]:
    """All variables of one worker: the `inherited` ones but for options, and over them what the launcher decides.

    Variables of options are the launcher's to read: a worker gets those that it needs (`told`) with the values of the
    job's head, and a job that its script starts gets none of them by accident (see `option_sources.users_variables`).
    The descriptors of its sockets are missing: they have numbers only when the worker is started.

    Args:
        plan: The worker.
        cluster: All workers.
        inherited: The agent's variables.
        told: Those that head and agent add.
    """
    identity = plan.identity.to_environment()
    variables = {
        **{name: value for name, value in inherited.items() if name not in _OF_OPTIONS | _OF_OTHER_LAUNCHERS.keys()},
        **told,
        **identity,
        **(
            {name: identity[own] for name, own in _OF_OTHER_LAUNCHERS.items()}
            if read_variables(JobOptions, told, "rank_variables").rank_variables
            else {}
        ),
        environment.TF_CONFIG: cluster.to_tf_config(plan.identity.task),
        environment.LIVE_LINE: "",  # a launcher inside a worker writes for this one
        environment.JOB_DIRECTORY: str(job_directory(plan.identity.job_id)),
        "PYTHONUNBUFFERED": "1",  # else the last lines of a worker that is killed are lost
    }
    if not plan.identity.in_world:
        kept = _FOLLOWED if plan.identity.task.type == EVALUATOR else None
        for name in _OF_RANKS:
            if name != kept:
                variables.pop(name, None)
    if plan.identity.task.type == DATA:
        variables[environment.DATA_ADDRESS] = str(cluster.address_of(plan.identity.task))
    if plan.identity.serves:
        # No word of each connection, nor of each message that is lost with a process: the launcher names the process.
        variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    elif environment.DATA_SERVICE in told:  # of how the dispatcher in the chief's process is set up
        variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    # Sets of strings are listed in the order of their hashes: `list(set(labels))` must be the same on all ranks.
    variables.setdefault("PYTHONHASHSEED", str(plan.identity.seed % _HASH_SEEDS))
    variables.pop(environment.CPUS, None)  # a launcher inside a worker of another job
    if plan.cores is not None:
        variables[environment.CPUS] = ",".join(str(core) for core in plan.cores.cores)
        for name in THREAD_COUNTS:
            variables.setdefault(name, str(plan.cores.num_threads))
    if plan.gpu is not None:
        variables[CUDA_VISIBLE_DEVICES] = plan.gpu
    if plan.net_devices:
        variables.setdefault(UCX_NET_DEVICES, plan.net_devices)
    if plan.gpu_is_shared:  # NCCL refuses two ranks on one GPU, and by itself also on two instances of one
        variables.setdefault(job_options.COMMUNICATION, Communication.MPI.value)
    variables[environment.TOLD] = json.dumps({name: variables[name] for name in sorted(_OF_OPTIONS & variables.keys())})
    return variables
