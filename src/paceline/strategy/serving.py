"""A TensorFlow server, for a strategy whose variables and steps live in other processes: how it serves, and how it ends
with the chief, whose part is in `chief_of_servers.py`.

    server                                           chief
      │ registers `_Chief.hear`, serves                  │ waits until each server answers (`attend`)
      │ waits until the chief answers                    │ connects to the cluster: its own port opens
      │ ── a TCP connection that carries nothing ──────► │
      │ ◄── `NO_WORD`, by TensorFlow's RPC ───────────── │ waits until all servers have taken it (`await_followers`)
      │                                                  │ trains
      │ ◄── its exit code, the same way ──────────────── │ its script has ended (`end_servers`)
      │    the connection breaks, the port is closed     ✝
      └─ ends with that code; with 69 if there was none: the chief was killed, or its host is lost

The code is told in advance, and the end of the process ends the servers: whatever the chief still frees at its end may
ask them. Under `paceline run` the launcher ends servers, and none of this is needed. Why no agents do this, as beside
ranks: docs/decisions/0040-servers-by-hand.md.
"""

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
from paceline.cluster.server_cluster import open_servers
from paceline.cluster.spec import CHIEF, Address, ClusterSpec, Task
from paceline.comm.by_hand import start_timeout_seconds
from paceline.comm.world import current_world
from paceline.errors import EXIT_UNAVAILABLE
from paceline.leaving import leave_script, run_exit_handlers
from paceline.rendezvous.channel import Joined
from paceline.rendezvous.connection import notice_vanished_peers
from paceline.rendezvous.dialing import UnreachableError, connect
from paceline.strategy import compat
from paceline.strategy.answering import await_answers

CHIEFS_END = "paceline_chiefs_end"
"""What the chief calls in a server to say with which code it will end."""

NO_WORD = -1
"""The code of a chief that ends without saying another one."""

_PROTOCOL = "grpc"
_LEAST_THREADS = 4
"""For operations of a server. A step waits in one for what other operations on the same server compute."""

_CONNECT_SECONDS = 2.0
_RECONNECT_SECONDS = 2.0
"""How long a chief whose connection broke is looked for: gRPC itself closes connections that carry nothing."""

_POLL_SECONDS = 0.2


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
    compat.register_function(CHIEFS_END, chief.hear)
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
    code, reason = chief.follow(str(task), start_timeout_seconds(os.environ))
    if reason:
        _say(f"{task} ends, because the chief ({chief.address}) {reason}")
    run_exit_handlers()
    leave_script(code)


_servers: list[tf.distribute.Server] = []
"""That of this process, which serves while it is kept."""


class _Chief:
    """The chief, as a server sees the process: whether there is a connection, and the exit code that was told."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._code = NO_WORD
        self._followed = threading.Event()

    def hear(self, code: int) -> int:
        """Called by TensorFlow's runtime, in this server, for the chief. Returns when there is a connection, whose
        break is the chief's end.
        """
        self._code = int(code)
        self._followed.wait()
        return code

    def follow(self, server: str, timeout_seconds: float) -> tuple[int, str]:
        """Blocks until the chief has come and is gone: the exit code, and why, where the chief did not tell it.

        Args:
            server: The name of this process.
            timeout_seconds: How long it waits for the chief.
        """
        if await_answers(server, {"the chief": self.address}, timeout_seconds).missing:
            return EXIT_UNAVAILABLE, f"did not come within {timeout_seconds:g} s. Start it. [start-timeout]"
        while (connection := self._connected()) is not None:
            self._followed.set()
            with connection, suppress(OSError):  # broken, or the chief's host does not answer any more
                while connection.recv(1 << 10):  # gRPC's greeting
                    pass
        if self._code == NO_WORD:
            return EXIT_UNAVAILABLE, "was killed, or its host is lost. Start all processes again. [chief-lost]"
        return self._code, ""

    def _connected(self) -> socket.socket | None:
        """A connection to the chief's port; None: the chief is gone."""
        deadline = time.monotonic() + (_RECONNECT_SECONDS if self._code == NO_WORD else 0.0)
        while True:
            try:
                connection = connect(self.address, _CONNECT_SECONDS)
            except UnreachableError:
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_POLL_SECONDS)
                continue
            connection.settimeout(None)
            notice_vanished_peers(connection)
            return connection


def _say(text: str) -> None:
    """Tells the user of a process that no launcher has started."""
    print(f"paceline: {text}", file=sys.stderr, flush=True)
