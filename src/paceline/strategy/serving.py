"""TensorFlow's servers, for a strategy whose variables and steps live in other processes: how they serve, and how they
end with the chief.

    server                                           chief
      │ registers `_Chief`'s two functions, serves       │ waits until each server's port answers (`attend`)
      │                                                  │ connects to the cluster: its own port opens
      │ ── a TCP connection that carries nothing ──────► │
      │ ◄── "do you follow?", by TensorFlow's RPC ────── │ waits for all servers' answers (`await_followers`)
      │                                                  │ trains
      │ ◄── exit code: the function, by TensorFlow's RPC │ its script has ended (`end_servers`)
      │    the connection breaks, the port is closed     ✝
      └─ ends with that code; with 69 if there was none: the chief was killed, or its host is lost

The code is told in advance, and the end of the process ends the servers: whatever the chief still frees at its end may
ask them. Under `paceline run` the launcher ends servers, and none of this is needed.
"""

import functools
import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

import tensorflow as tf

from paceline.cluster.own_address import check_own_address
from paceline.cluster.server_cluster import OPEN_SERVERS, open_servers
from paceline.cluster.spec import CHIEF, PARAMETER_SERVER, WORKER, Address, ClusterSpec, Task
from paceline.comm.by_hand import start_timeout_seconds
from paceline.comm.departure import Departure
from paceline.comm.world import current_world
from paceline.errors import EXIT_UNAVAILABLE, StartError
from paceline.leaving import leave_script, run_exit_handlers
from paceline.rendezvous.channel import Joined
from paceline.strategy import compat

_LOGGER = logging.getLogger("paceline")

_END = "paceline_end"
_FOLLOWED = "paceline_followed"
_PROTOCOL = "grpc"
_LEAST_THREADS = 4
"""For operations of a server. A step waits in one for what other operations on the same server compute."""

_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 2.0
_RECONNECT_SECONDS = 2.0
"""How long a chief whose connection broke is looked for: gRPC itself closes connections that carry nothing."""

_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 5, 5, 2
"""The kernel asks a silent chief's host after that many seconds, and again: one that is lost is noticed in 15 s."""

_END_SECONDS = 5.0
"""How long the chief tries to tell its exit code."""


def serve(cluster: ClusterSpec, task: Task) -> NoReturn:
    """Serves as `task` until the chief of `cluster` has ended, then ends this process with the chief's exit code.

    The code is 69, and a line says so, if the chief was killed (noticed within 3 s), if its host is lost (within
    20 s), or if no chief came within PACELINE_START_TIMEOUT (by default 300 s). SIGTERM and Ctrl-C end this process at
    once. Under `paceline run` the launcher ends it.

    Args:
        cluster: With a chief, and the address of `task`.
        task: A worker or a parameter server.

    Raises:
        ConfigurationError: the port of `task` is taken, or a secret is required, which TensorFlow's servers do not ask
            for.
    """
    is_launched = current_world().launched
    if not is_launched:
        open_servers(cluster, os.environ)
        check_own_address(cluster.address_of(task))
    chief = _Chief(cluster.address_of(Task(CHIEF, 0)))
    compat.register_function(_END, chief.tell)
    compat.register_function(_FOLLOWED, chief.await_followed)
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=max(_LEAST_THREADS, os.cpu_count() or 1))
    spec = tf.train.ClusterSpec(cluster.as_dict())
    _servers.append(
        tf.distribute.Server(spec, job_name=task.type, task_index=task.index, protocol=_PROTOCOL, config=config)
    )
    # TensorFlow ignores the first, and Python's own handler of the second waits for the main thread. A launched server
    # leaves the first to the launcher, too: a scheduler's SIGTERM is for the job, whose last snapshot needs it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if is_launched else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if is_launched:
        current_world().tell(Joined())
        threading.Event().wait()
    _say(f"{task} serves at {cluster.address_of(task)} until the chief ({chief.address}) ends")
    code, reason = chief.follow()
    if reason:
        _say(f"{task} ends, because the chief ({chief.address}) {reason}")
    run_exit_handlers()
    leave_script(code)


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
    deadline = time.monotonic() + timeout_seconds
    missing = dict.fromkeys(servers_of(cluster), "")
    while missing := {task: fault for task in missing if (fault := _fault_of(cluster.address_of(task)))}:
        if time.monotonic() >= deadline:
            raise StartError(f"{_missing_text(cluster, missing, timeout_seconds)} [start-timeout]")
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
    for task in servers_of(cluster):
        try:
            _call(task, _FOLLOWED, 0)
        except tf.errors.OpError as lost:
            raise StartError(
                f"{task} at {cluster.address_of(task)} has ended while the job was starting. What {task} printed last "
                "says why; a firewall that keeps the servers from reaching the chief is a usual reason. [start-timeout]"
            ) from lost


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


_servers: list[tf.distribute.Server] = []
"""That of this process, which serves while it is kept."""


class _Chief:
    """The chief, as a server sees the process: whether there is a connection, and the exit code that was told."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._code: int | None = None
        self._followed = threading.Event()

    def tell(self, code: int) -> int:
        """Called by TensorFlow's runtime, in this server, for the chief."""
        self._code = int(code)
        return code

    def await_followed(self, number: int) -> int:
        """Called like `tell`: returns `number` when this server has a connection, whose break is the chief's end."""
        self._followed.wait()
        return number

    def follow(self) -> tuple[int, str]:
        """Blocks until the chief has come and is gone: the exit code, and why, where the chief did not tell it."""
        timeout_seconds = start_timeout_seconds(os.environ)
        connection = _connected(self.address, timeout_seconds)
        if connection is None:
            return EXIT_UNAVAILABLE, f"did not come within {timeout_seconds:g} s. Start it. [start-timeout]"
        self._followed.set()
        while connection is not None:
            with connection, suppress(OSError):  # broken, or the chief's host does not answer any more
                while connection.recv(1 << 10):  # gRPC's greeting
                    pass
            connection = _connected(self.address, _RECONNECT_SECONDS if self._code is None else 0.0)
        if self._code is None:
            return EXIT_UNAVAILABLE, "was killed, or its host is lost. Start all processes again. [chief-lost]"
        return self._code, ""


def _call(task: Task, function: str, number: int) -> None:
    """Calls what the server `task` has registered as `function`. Raises `tf.errors.OpError`: the server is lost."""
    with tf.device(f"/job:{task.type}/replica:0/task:{task.index}/device:CPU:0"):
        tf.raw_ops.PyFunc(input=[tf.constant(number, tf.int64)], token=function, Tout=[tf.int64])


def _tell(task: Task, code: int) -> None:
    with suppress(tf.errors.OpError):
        _call(task, _END, code)


def _connected(chief: Address, timeout_seconds: float) -> socket.socket | None:
    """A connection to the chief's port, which opens when it connects to the cluster; None: not in time."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            connection = socket.create_connection((chief.host, chief.port), _CONNECT_SECONDS)
        except OSError:
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_SECONDS)
            continue
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        return connection


def _fault_of(address: Address) -> str:
    """Why the server at `address` does not answer; empty: it does."""
    try:
        socket.create_connection((address.host, address.port), _CONNECT_SECONDS).close()
    except OSError as fault:
        return fault.strerror or str(fault)
    return ""


def _missing_text(cluster: ClusterSpec, missing: dict[Task, str], timeout_seconds: float) -> str:
    named = "; ".join(f"{task} at {cluster.address_of(task)} ({fault})" for task, fault in missing.items())
    return (
        f"the chief waited {timeout_seconds:g} s for servers that did not come: {named}. Start each with its own "
        "TF_CONFIG, or correct its address; --start-timeout (PACELINE_START_TIMEOUT) sets how long to wait."
    )


def _say(text: str) -> None:
    print(f"paceline: {text}", file=sys.stderr, flush=True)
