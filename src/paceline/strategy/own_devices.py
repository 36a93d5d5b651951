"""The devices of a chief have the names of its cluster from their first use on, before there is a strategy.

TensorFlow names a process's devices after its job. A process that connects to a cluster after it has computed gets new
ones, `/job:chief/…` in place of `/job:localhost/…`, and all that lies on the old ones is lost: datasets, variables,
tables, functions that have been traced. Most scripts make such things before their strategy.

    TensorFlow is imported ─► its first operation ────────────► `ParameterServerStrategy()`
       `name_own_devices`         a cluster of the chief alone     waits for the servers, which join that cluster

So nobody waits for a server before there is a strategy, and the script may still change `tf.config` meanwhile.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from paceline.cluster import environment
from paceline.cluster.own_address import check_own_address
from paceline.cluster.server_cluster import is_chief_of_servers, open_servers
from paceline.cluster.spec import CHIEF, PARAMETER_SERVER, WORKER, ClusterSpec, Task
from paceline.cluster.tf_config import read_tf_config
from paceline.errors import ConfigurationError
from paceline.strategy import compat

_JOBS = (CHIEF, WORKER, PARAMETER_SERVER)


def name_own_devices(place: tuple[ClusterSpec, Task] | None) -> None:
    """In the chief of a cluster with parameter servers, before TensorFlow's first operation. Elsewhere: nothing.

    Without effect where TensorFlow has set up its devices already, and in a process that is forked from this one.

    Args:
        place: The cluster and the process's own task; None: nobody has named any.
    """
    if place is None or compat.has_devices():
        return
    cluster, task = place
    if task == Task(CHIEF, 0) and set(_JOBS) <= cluster.addresses.keys():
        _name_devices(cluster.as_dict())


def name_devices_by_hand(variables: Mapping[str, str]) -> None:
    """As `name_own_devices`, in a process that no launcher started, of the cluster in TF_CONFIG."""
    from multiprocessing import parent_process

    if environment.RANK in variables or parent_process() is not None:
        return
    try:
        place = read_tf_config(variables)
        if place is None or not is_chief_of_servers(place):
            return
        open_servers(place[0], variables)
        check_own_address(place[0].address_of(place[1]))  # taken where this process is a child of the chief
    except ConfigurationError:  # who makes the strategy is told
        return
    name_own_devices(place)


def _name_devices(cluster: Mapping[str, Sequence[str]]) -> None:
    """When TensorFlow sets up the devices, it names them; when it connects to `cluster` later, they stay.

    By itself TensorFlow would take that for another cluster, and make new devices.
    """
    runtime, pid, lock = compat.context(), os.getpid(), threading.RLock()
    if "ensure_initialized" in vars(runtime):
        return
    set_up, connect = runtime.ensure_initialized, runtime.set_server_def

    def ensure_initialized() -> None:
        with lock:
            is_first = vars(runtime).pop("ensure_initialized", None) is not None
            if is_first and os.getpid() == pid and runtime.get_server_def() is None:
                connect(_chief_alone(cluster))
        set_up()

    def set_server_def(server_def: Any, *args: Any, **kwargs: Any) -> None:
        if not compat.has_devices() or _own_place(runtime.get_server_def()) != _own_place(server_def):
            connect(server_def, *args, **kwargs)
            return
        server_def.ClearField("cluster_device_filters")  # those of `_chief_alone` stay, and TensorFlow warns of others
        runtime.update_server_def(server_def, *args, **kwargs)

    runtime.ensure_initialized, runtime.set_server_def = ensure_initialized, set_server_def


def _chief_alone(cluster: Mapping[str, Sequence[str]]) -> Any:
    """A cluster of the chief, with who of the others will see whom, as in TensorFlow's strategy."""
    server_def = tf.train.ServerDef(
        cluster=tf.train.ClusterSpec({CHIEF: cluster[CHIEF]}).as_cluster_def(),
        job_name=CHIEF,
        protocol="grpc",
        default_session_config=compat.context().config,
    )
    for job in (WORKER, PARAMETER_SERVER):
        tasks = server_def.cluster_device_filters.jobs.add(name=job).tasks
        for task in range(len(cluster[job])):
            tasks[task].device_filters.extend(f"/job:{other}" for other in _JOBS if other != job)
    return server_def


def _own_place(server_def: Any) -> tuple[str, int, str] | None:
    if server_def is None:
        return None
    job, task = server_def.job_name, server_def.task_index
    return job, task, next((one.tasks.get(task, "") for one in server_def.cluster.job if one.name == job), "")
