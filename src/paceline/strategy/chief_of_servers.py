"""The chief of TensorFlow's servers: waits for them, and ends them with its own process.

The other side, and a drawing of both, is in `serving.py`. Under `paceline run` the launcher ends servers.
"""

import functools
import logging
import os
import socket
import threading
import time
from contextlib import suppress

import tensorflow as tf

from paceline.cluster.server_cluster import OPEN_SERVERS, open_servers
from paceline.cluster.spec import CHIEF, PARAMETER_SERVER, WORKER, Address, ClusterSpec, Task
from paceline.comm.by_hand import start_timeout_seconds
from paceline.comm.departure import Departure
from paceline.comm.world import current_world
from paceline.errors import StartError
from paceline.strategy import compat
from paceline.strategy.serving import END, FOLLOWED, say

_LOGGER = logging.getLogger("paceline")

_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 2.0
_FIRST_LINE_SECONDS, _LINE_SECONDS = 2.0, 10.0
"""When a chief that waits first says so, and how often."""

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
    await_servers(cluster, start_timeout_seconds(os.environ))
    if is_launched:
        current_world().fails_with_another = functools.partial(tells_of_lost_server, cluster)
    else:
        departure_by_hand().at_end = lambda code: end_servers(cluster, code)


def tells_of_lost_server(cluster: ClusterSpec, error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, was raised because a parameter server of `cluster` is lost.

    Not all that TensorFlow raises then says so: what was waiting for another message is told only that it is cancelled.
    """
    while error is not None and not isinstance(error, tf.errors.OpError):
        error = error.__cause__ or error.__context__
    if error is None:
        return False
    servers = [task for task in servers_of(cluster) if task.type == PARAMETER_SERVER]
    return compat.is_loss_of_server(error) or any(_fault_of(cluster.address_of(task)) for task in servers)


@functools.cache
def departure_by_hand() -> Departure:
    """That of this process, which no launcher started. Watches its end from the first call on, so that what Paceline
    refuses is one sentence and an exit code of its own.
    """
    departure = Departure()
    departure.watch()
    return departure


def await_servers(cluster: ClusterSpec, timeout_seconds: float) -> None:
    """Returns when the ports of all workers and parameter servers of `cluster` answer.

    Raises:
        StartError: one did not within `timeout_seconds`; all such are named, each with its role, index and address.
    """
    started = time.monotonic()
    next_line = started + _FIRST_LINE_SECONDS
    missing = dict.fromkeys(servers_of(cluster), "")
    while missing := {task: fault for task in missing if (fault := _fault_of(cluster.address_of(task)))}:
        now = time.monotonic()
        if now >= started + timeout_seconds:
            raise StartError(
                f"the chief waited {timeout_seconds:g} s for servers that did not come: {_named(cluster, missing)}. "
                "Start each with its own TF_CONFIG, or correct its address; --start-timeout (PACELINE_START_TIMEOUT) "
                "sets how long to wait. [start-timeout]"
            )
        if now >= next_line:
            next_line = now + _LINE_SECONDS
            say(f"the chief waits for {_named(cluster, missing)}; {started + timeout_seconds - now:.0f} s left")
        time.sleep(_POLL_SECONDS)


def await_followers(cluster: ClusterSpec) -> None:
    """On the chief, connected to `cluster`: returns when the servers will notice that this process has ended.

    A chief that ends before a server has looked for it would be waited for in vain. Under `paceline run` the launcher
    ends the servers: there is nothing to wait for.

    Raises:
        StartError: a server has ended meanwhile, because it cannot reach this process, for example.
    """
    if current_world().launched:
        return
    reached = f"the chief waits until all servers have reached it at {cluster.address_of(Task(CHIEF, 0))}"
    line = threading.Timer(_FIRST_LINE_SECONDS, say, [reached])
    line.start()
    try:
        for task in servers_of(cluster):
            _call(task, FOLLOWED, 0)
    except tf.errors.OpError as lost:
        raise StartError(
            f"{task} at {cluster.address_of(task)} has ended while the job was starting. What {task} printed last "
            "says why; a firewall that keeps the servers from reaching the chief is a usual reason. [start-timeout]"
        ) from lost
    finally:
        line.cancel()


def end_servers(cluster: ClusterSpec, code: int) -> None:
    """On the chief, connected to `cluster`: its servers end with `code` as soon as this process has ended.

    A server that is gone, or cannot be told within 5 s, is none of this process's business any more: it will see that
    the chief has ended, and ends with 69.
    """
    threads = [
        threading.Thread(target=_tell, args=(task, code), name=f"paceline ends {task}", daemon=True)
        for task in servers_of(cluster)
    ]
    deadline = time.monotonic() + _END_SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def servers_of(cluster: ClusterSpec) -> tuple[Task, ...]:
    """The tasks of `cluster` that serve: its workers, then its parameter servers."""
    return tuple(
        Task(type_, index)
        for type_ in (WORKER, PARAMETER_SERVER)
        for index in range(len(cluster.addresses.get(type_, ())))
    )


def _call(task: Task, function: str, number: int) -> None:
    """Calls what the server `task` has registered as `function`. Raises `tf.errors.OpError`: the server is lost."""
    with tf.device(f"/job:{task.type}/replica:0/task:{task.index}/device:CPU:0"):
        tf.raw_ops.PyFunc(input=[tf.constant(number, tf.int64)], token=function, Tout=[tf.int64])


def _tell(task: Task, code: int) -> None:
    with suppress(tf.errors.OpError):
        _call(task, END, code)


def _fault_of(address: Address) -> str:
    """Why the server at `address` does not answer; empty: it does."""
    try:
        socket.create_connection((address.host, address.port), _CONNECT_SECONDS).close()
    except OSError as fault:
        return fault.strerror or str(fault)
    return ""


def _named(cluster: ClusterSpec, missing: dict[Task, str]) -> str:
    return "; ".join(f"{task} at {cluster.address_of(task)} ({fault})" for task, fault in missing.items())
