"""The chief of TensorFlow's servers: waits for them, and ends them with its own process.

The other side, and a drawing of both, is in `serving.py`. Under `paceline run` the launcher ends servers.
"""

import functools
import logging
import os
import sys
import threading
import time
from contextlib import suppress

import tensorflow as tf

from paceline.cluster.server_cluster import OPEN_SERVERS, open_servers
from paceline.cluster.spec import CHIEF, PARAMETER_SERVER, WORKER, ClusterSpec, Task
from paceline.comm.by_hand import start_timeout_seconds
from paceline.comm.departure import own_departure
from paceline.comm.world import current_world
from paceline.errors import StartError
from paceline.rendezvous.waiting import FIRST_LINE_SECONDS, late_message
from paceline.strategy import compat
from paceline.strategy.answering import SILENT, await_answers, faults_of
from paceline.strategy.serving import CHIEFS_END, NO_WORD

_LOGGER = logging.getLogger("paceline")

_END_SECONDS = 5.0
"""How long the chief tries to tell its exit code."""


def attend(cluster: ClusterSpec) -> None:
    """On the chief, before TensorFlow connects to `cluster`: waits for its servers, and ends them with this process.

    They end with this process's exit code, also after an exception or `sys.exit`. Under `paceline run` the launcher
    sees to that.

    Raises:
        StartError: a server did not answer within ``--start-timeout`` (by default 300 s, launched 60 s). TensorFlow
            itself would wait for ever.
        ConfigurationError: a secret is required, which TensorFlow's servers do not ask for.
    """
    is_launched = current_world().launched
    if not is_launched and open_servers(cluster, os.environ):
        _LOGGER.warning("%s.", OPEN_SERVERS)
    addresses = {str(task): cluster.address_of(task) for task in _servers_of(cluster)}
    timeout_seconds = start_timeout_seconds(os.environ)
    waiting = await_answers("the chief", addresses, timeout_seconds)
    if waiting.missing:
        limit = f"start timeout of the chief: {timeout_seconds:g} s"
        raise StartError(f"{late_message('server', len(addresses), waiting, limit)} [start-timeout]")
    if is_launched:
        current_world().fails_with_another = lambda error: bool(lost_servers(cluster, error))
    else:
        own_departure().at_end = lambda code: end_servers(cluster, code)
        own_departure().reason_of = lambda error: _reason_of(cluster, error)


def lost_servers(cluster: ClusterSpec, error: BaseException | None) -> str:
    """The parameter servers of `cluster` whose loss has raised an exception, or one that led to it; empty: none has.

    Not all that TensorFlow raises then says so: what was waiting for another message is told only that it is cancelled.
    """
    while error is not None and not isinstance(error, tf.errors.OpError):
        error = error.__cause__ or error.__context__
    if error is None:
        return ""
    servers = [task for task in _servers_of(cluster) if task.type == PARAMETER_SERVER]
    faults = faults_of({task: cluster.address_of(task) for task in servers})
    named = [f"{task} at {cluster.address_of(task)}" for task, fault in faults.items() if fault != SILENT]
    return ", ".join(named) or ("a parameter server" if compat.is_loss_of_server(error) else "")


def _reason_of(cluster: ClusterSpec, error: BaseException) -> str:
    lost = lost_servers(cluster, error)
    return lost and (
        f"lost with its variables: {lost}. Start all processes again. With snapshots, training then continues from the "
        "newest one. [server-lost]"
    )


def await_followers(cluster: ClusterSpec) -> None:
    """On the chief, connected to `cluster`: returns when the servers will notice that this process has ended.

    A chief that ends before a server has looked for it would be waited for in vain. Under `paceline run` the launcher
    ends the servers: there is nothing to wait for.

    Raises:
        StartError: a server has ended meanwhile, because it cannot reach this process, for example.
    """
    if current_world().launched:
        return
    address = cluster.address_of(Task(CHIEF, 0))
    text = f"paceline: the chief waits until all servers have reached it at {address}"
    line = threading.Timer(FIRST_LINE_SECONDS, functools.partial(print, text, file=sys.stderr, flush=True))
    line.start()
    strangers = []
    try:
        for task in _servers_of(cluster):
            try:
                _tell(task, NO_WORD)
            except tf.errors.InvalidArgumentError:
                strangers.append(str(task))
    except tf.errors.OpError as lost:
        raise StartError(
            f"{task} at {cluster.address_of(task)} has ended while the job was starting. What {task} printed last "
            "says why; a firewall that keeps the servers from reaching the chief is a usual reason. [start-timeout]"
        ) from lost
    finally:
        line.cancel()
    if strangers:
        _LOGGER.warning(
            "TensorFlow's own servers run as %s, and do not end with this job: end them yourself, or make a "
            "paceline.ParameterServerStrategy in these processes in place of a tf.distribute.Server.",
            ", ".join(strangers),
        )


def end_servers(cluster: ClusterSpec, code: int) -> None:
    """On the chief, connected to `cluster`: its servers end with `code` as soon as this process has ended.

    A server that is gone, or cannot be told within 5 s, is none of this process's business any more: it will see that
    the chief has ended, and ends with 69.
    """

    def tell(task: Task) -> None:
        with suppress(tf.errors.OpError):
            _tell(task, code)

    threads = [
        threading.Thread(target=tell, args=(task,), name=f"paceline ends {task}", daemon=True)
        for task in _servers_of(cluster)
    ]
    deadline = time.monotonic() + _END_SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _servers_of(cluster: ClusterSpec) -> tuple[Task, ...]:
    """The tasks of `cluster` that serve: its workers, then its parameter servers."""
    return tuple(
        Task(type_, index)
        for type_ in (WORKER, PARAMETER_SERVER)
        for index in range(len(cluster.addresses.get(type_, ())))
    )


def _tell(task: Task, code: int) -> None:
    """Says to a server how this process will end; returns when the server will notice that.

    Raises:
        InvalidArgumentError: nobody listens: the server is not one of Paceline's.
        OpError: it is lost.
    """
    with tf.device(f"/job:{task.type}/replica:0/task:{task.index}/device:CPU:0"):
        tf.raw_ops.PyFunc(input=[tf.constant(code, tf.int64)], token=CHIEFS_END, Tout=[tf.int64])
