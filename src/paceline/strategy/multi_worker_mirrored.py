"""`MultiWorkerMirroredStrategy`: synchronous training over the processes that TF_CONFIG or a launcher names."""

import json
import logging
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.cluster.mpi_launchers import announced_by_mpi
from paceline.cluster.own_address import check_own_address
from paceline.cluster.schedulers import scheduled_place, why_alone
from paceline.cluster.spec import PARAMETER_SERVER, ROLES, ClusterSpec, Task
from paceline.cluster.tf_config import parse_tf_config, read_tf_config
from paceline.comm.by_hand import join_world, start_timeout_seconds
from paceline.comm.departure import Departure, own_departure
from paceline.comm.site_mpi import join_site_mpi
from paceline.comm.world import World, current_world
from paceline.data.order.seeds import share_default_generators
from paceline.errors import ConfigurationError
from paceline.strategy import compat
from paceline.strategy.base import SynchronousStrategy, local_device
from paceline.strategy.collective_runtime import refuse_by_hand
from paceline.strategy.operation_seeds import use_job_seed
from paceline.wire.versions import installed_versions

_LOGGER = logging.getLogger("paceline")
_UNSEEDED = -1


class MultiWorkerMirroredStrategy(SynchronousStrategy):
    """Trains one model synchronously on many processes; drop-in for `tf.distribute.MultiWorkerMirroredStrategy`.

        strategy = paceline.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = build_and_compile()
        model.fit(dataset, epochs=3)            # its batches are global: each worker computes its rows of each

    Under `paceline run` it trains on all workers of the job. In a process started by hand, it reads TF_CONFIG and waits
    for the other tasks (collective). Without TF_CONFIG, it trains on the processes that an MPI launcher (`mpiexec`),
    Slurm (`srun`) or a Kubernetes Indexed Job has started. In any other process it trains alone.

    Args:
        cluster_resolver: A `tf.distribute.cluster_resolver.ClusterResolver` to use in place of TF_CONFIG.
        communication_options: A `tf.distribute.experimental.CommunicationOptions`. Accepted for compatibility:
            PACELINE_COMMUNICATION (mpi, ring, nccl) chooses how ranks talk; on CPUs MPI and shared memory.

    Raises:
        ConfigurationError: TF_CONFIG or a scheduler's variables are wrong; the message names every mistake.
        StartError: a task did not connect in time.
    """

    def __init__(self, cluster_resolver: Any = None, communication_options: Any = None) -> None:
        del communication_options
        world = world_of(cluster_resolver)
        super().__init__(world, local_device(world))


class ExperimentalMultiWorkerMirroredStrategy(MultiWorkerMirroredStrategy):
    """Drop-in for `tf.distribute.experimental.MultiWorkerMirroredStrategy`, whose arguments are named otherwise.

    Args:
        communication: A `tf.distribute.experimental.CollectiveCommunication`; accepted for compatibility.
        cluster_resolver: As in `MultiWorkerMirroredStrategy`.
    """

    def __init__(self, communication: Any = None, cluster_resolver: Any = None) -> None:
        super().__init__(cluster_resolver=cluster_resolver, communication_options=communication)


def _warn_of_training_alone() -> None:
    hint = why_alone(os.environ)
    _LOGGER.warning(
        "this process trains alone, because it has no TF_CONFIG and no launcher. Start the script with "
        "`paceline run --workers N`, or set TF_CONFIG on every host before the strategy is created.%s",
        f" ({hint})" if hint else "",
    )


def world_of(
    cluster_resolver: Any,
    when_alone: Callable[[], None] = _warn_of_training_alone,
    arrange: Callable[[World], None] = lambda _: None,
) -> World:
    """The world that this process belongs to, joined now if need be (collective then); alone if nobody names others.

    Args:
        cluster_resolver: As in `MultiWorkerMirroredStrategy`.
        when_alone: Called if nobody names others.
        arrange: Given the world before its ranks communicate; raises if it cannot be used.

    Raises:
        ConfigurationError: see `MultiWorkerMirroredStrategy`.
        StartError: see `MultiWorkerMirroredStrategy`.
    """
    world = current_world()
    if world.launched or world.size > 1:
        _warn_of_other_config(world)
        arrange(world)
        return world
    departure = own_departure()
    place = read_tf_config(os.environ) if cluster_resolver is None else place_of(cluster_resolver)
    if place is None:
        return _world_without_tf_config(world, departure, when_alone, arrange)
    cluster, task = place
    if cluster.world_size == 1 or not ROLES[task.type].in_cluster:
        arrange(world)
        return world
    if task.type == PARAMETER_SERVER:
        raise ConfigurationError(
            "TF_CONFIG makes this process a parameter server (task.type is 'ps'), but a "
            "MultiWorkerMirroredStrategy has no parameter servers. Change the type to 'worker' or 'chief'. "
            "[tf-config]"
        )
    refuse_by_hand(os.environ)
    check_own_address(cluster.address_of(task))
    return _joined(cluster, task, departure, arrange)


def _world_without_tf_config(
    alone: World, departure: Departure, when_alone: Callable[[], None], arrange: Callable[[World], None]
) -> World:
    """The world of an MPI launcher or of a scheduler that started this process; else `alone`."""
    announced = announced_by_mpi(os.environ)
    scheduled = scheduled_place(os.environ) if announced is None or announced.size == 1 else None
    if announced is not None and announced.size == 1 and scheduled is not None:
        raise ConfigurationError(
            f"{announced.launcher} started this process alone ({announced.variables[1]}=1), but "
            f"{scheduled.scheduler.name} started {scheduled.cluster.world_size} processes: each would train alone. "
            "Start the workers with one of the two, `srun python train.py` or `mpiexec -n N python train.py`. "
            "[scheduler]"
        )
    if announced is not None and announced.size > 1:
        refuse_by_hand(os.environ)
        world = join_site_mpi(announced, os.environ, installed_versions(), departure)
        arrange(world)
        _adopt_chiefs_randomness(world)
        return world
    if scheduled is not None:
        cluster, task, scheduler = scheduled
        refuse_by_hand(os.environ)
        check_own_address(cluster.address_of(task), scheduler.name, scheduler.other_port)
        return _joined(cluster, task, departure, arrange)
    when_alone()
    arrange(alone)
    return alone


def _joined(cluster: ClusterSpec, task: Task, departure: Departure, arrange: Callable[[World], None]) -> World:
    seconds = start_timeout_seconds(os.environ)
    world = join_world(cluster, task, seconds, installed_versions(), departure, arrange)
    _adopt_chiefs_randomness(world)
    return world


def _adopt_chiefs_randomness(world: World) -> None:
    """Gives Python's, NumPy's and TensorFlow's global generators the chief's state. Collective.

    A launched worker is seeded before its script runs. By hand the script has already run up to the strategy, and may
    have seeded everything itself, as it would with one worker. So the ranks take over the *state* of the chief's
    generators: what the script has seeded stays seeded, and the run is the one that a single worker would have made.
    """
    version, internal, next_gauss = random.getstate()
    name, keys, position, has_gauss, cached_gauss = np.random.get_state(legacy=True)
    own_seed = compat.global_seed()
    python, numpy_keys, numpy_rest, seed = world.group.broadcast(
        [
            np.array(internal, np.int64),
            np.asarray(keys),
            np.array([position, has_gauss, cached_gauss], np.float64),
            np.array([_UNSEEDED if own_seed is None else own_seed], np.int64),
        ]
    )
    if not world.is_chief:
        random.setstate((version, tuple(int(word) for word in python), next_gauss))
        np.random.set_state(
            (str(name), numpy_keys.astype(np.uint32), int(numpy_rest[0]), int(numpy_rest[1]), float(numpy_rest[2]))
        )
    share_default_generators(np.random, world.identity.seed)
    use_job_seed(world.identity.seed)
    chiefs_seed = None if int(seed[0]) == _UNSEEDED else int(seed[0])
    if chiefs_seed != own_seed:
        tf.random.set_seed(chiefs_seed)


def place_of(cluster_resolver: Any) -> tuple[ClusterSpec, Task] | None:
    """The cluster and task that a TensorFlow cluster resolver names, checked like TF_CONFIG."""
    cluster = cluster_resolver.cluster_spec().as_dict()
    if not cluster:
        return None
    task = {"type": cluster_resolver.task_type, "index": cluster_resolver.task_id}
    return parse_tf_config(json.dumps({"cluster": cluster, "task": task}))


def _warn_of_other_config(world: World) -> None:
    """A TF_CONFIG that the script wrote itself (tutorials do) loses against the launcher's; said once."""
    if not world.launched or world.place is None:
        return
    cluster, task = world.place
    written = os.environ.get("TF_CONFIG")
    if written and written != cluster.to_tf_config(task):
        os.environ["TF_CONFIG"] = cluster.to_tf_config(task)
        if world.is_chief:
            _LOGGER.warning(
                "the script sets its own TF_CONFIG, but this process was started by `paceline run`: the launcher's "
                "%d workers are used and the script's TF_CONFIG is ignored.",
                world.size,
            )
