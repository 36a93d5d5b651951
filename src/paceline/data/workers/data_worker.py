"""A data worker: tf.data's service in a process of its own, which makes batches for the ranks.

    chief: dispatcher ◄── which batches are there ── ranks
         │ ▲                                           ▲
         ▼ │ heartbeats                                │ batches (gRPC)
    data 0, data 1, … : TensorFlow's runtime ──────────┘

The dispatcher, which only says who makes what, lives in the chief's process: the ranks of a generation and what they
have asked for then end together, and no process stands beside them whose death would be another one's.
"""

import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

import tensorflow as tf

from paceline.cluster import environment
from paceline.comm.world import World
from paceline.rendezvous.channel import Joined

_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 2.0
_LINE_SECONDS = 30.0
"""A data worker that waits this long says so: scripts often load data before they call the service."""

_HEARTBEAT_SECONDS = 1
_LOST_SECONDS = 10
"""After so many without a heartbeat ranks ask a data worker no more."""

_servers: list[Any] = []
"""That of this process, which serves while it is kept."""


def serve_data(world: World, variables: Mapping[str, str]) -> NoReturn:
    """Makes batches until the launcher ends this process.

    Variables read: PACELINE_DATA_SERVICE, PACELINE_DATA_ADDRESS.

    Args:
        world: Of this process.
        variables: The environment.
    """
    dispatcher, own = variables[environment.DATA_SERVICE], variables[environment.DATA_ADDRESS]
    # As in `serving.py`: a scheduler's SIGTERM is for the ranks, which take a snapshot.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    world.tell(Joined())
    await_dispatcher(dispatcher)
    config = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=dispatcher,
        worker_address=own,
        port=int(own.rpartition(":")[2]),
        heartbeat_interval_ms=_HEARTBEAT_SECONDS * 1000,
    )
    _servers.append(tf.data.experimental.service.WorkerServer(config))
    threading.Event().wait()
    raise AssertionError("nobody sets the event")


def await_dispatcher(address: str, line_seconds: float = _LINE_SECONDS) -> None:
    """Returns when the chief dispatches at `address`; says once, after `line_seconds`, what this process waits for."""
    line_at = time.monotonic() + line_seconds
    while not answers(address):  # here, where it keeps no other thread of Python waiting
        if time.monotonic() >= line_at:
            line_at = math.inf
            print(
                "paceline: this data worker has nothing to do yet: the script has not called paceline.data.service. "
                "A script that never does needs no --data-workers",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(_POLL_SECONDS)


def dispatch_at(address: str) -> None:
    """From now on data workers and ranks meet at `address`, in this process. Further calls do nothing."""
    if _servers:
        return
    config = tf.data.experimental.service.DispatcherConfig(
        port=int(address.rpartition(":")[2]), worker_timeout_ms=_LOST_SECONDS * 1000
    )
    _servers.append(tf.data.experimental.service.DispatchServer(config))


def answers(address: str) -> bool:
    """Whether somebody listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        return True
    return False
