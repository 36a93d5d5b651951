"""A cluster of workers and parameter servers in the threads of one process, as TensorFlow's tutorial makes it."""

import contextlib
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

import paceline

sys.path.insert(0, str(Path(__file__).parents[1]))
from ports import held_ports

NUM_WORKERS, NUM_SERVERS = 2, 3

EARLY_DATA = tf.data.Dataset.from_tensors(([[0.0] * 4], [0.0]))
"""Made before any strategy, in a process of which nobody knew that it would have one."""


@functools.cache
def _addresses() -> Mapping[str, Sequence[str]]:
    """Those of the servers, which are started now and last as long as the process: TensorFlow cannot stop them."""
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    ports = [f"127.0.0.1:{port}" for port in _KEPT.enter_context(held_ports(NUM_WORKERS + NUM_SERVERS))]
    addresses = {"worker": ports[:NUM_WORKERS], "ps": ports[NUM_WORKERS:]}
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=NUM_WORKERS + NUM_SERVERS + 1)
    spec = tf.train.ClusterSpec(addresses)
    _SERVERS.extend(
        tf.distribute.Server(spec, job_name=role, task_index=index, protocol="grpc", config=config)
        for role, own in addresses.items()
        for index in range(len(own))
    )
    return addresses


_KEPT = contextlib.ExitStack()
_SERVERS: list[Any] = []


def resolver(num_servers: int = NUM_SERVERS, num_workers: int = NUM_WORKERS) -> Any:
    """Of a cluster with so many of the servers."""
    addresses = {"worker": _addresses()["worker"][:num_workers], "ps": _addresses()["ps"][:num_servers]}
    return tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(addresses), rpc_layer="grpc")


def strategy(num_servers: int = NUM_SERVERS, **options: Any) -> paceline.ParameterServerStrategy:
    """Over so many of the servers. The variables of an earlier strategy are lost."""
    return paceline.ParameterServerStrategy(resolver(num_servers), **options)
