"""Steps on one table, on one worker and two parameter servers of its own. Writes what a step takes to BENCH_RESULT.

python table_steps.py keras|tf_keras adagrad|adam ROWS [--lazy]
"""

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

COLUMNS, IDS = 64, 1280
WARM_UP_STEPS = 5


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def cluster_of(num_workers: int, num_servers: int) -> Iterator[tuple[dict[str, list[str]], list[int]]]:
    """The addresses of servers that run while the block lasts, and the process ids of the parameter servers."""
    ports = free_ports(num_workers + num_servers + 1)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    cluster = {"chief": addresses[:1], "worker": addresses[1 : 1 + num_workers], "ps": addresses[1 + num_workers :]}
    server = [sys.executable, str(Path(__file__).with_name("server.py"))]
    processes = [
        subprocess.Popen([*server, role, str(index), json.dumps(cluster)], stderr=subprocess.DEVNULL)
        for role in ("worker", "ps")
        for index in range(len(cluster[role]))
    ]
    try:
        yield cluster, [process.pid for process in processes[num_workers:]]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def bytes_of(pids: Sequence[int]) -> int:
    """What these processes have sent and received so far, as the kernel counts it for each connection.

    Not by port: TensorFlow's runtime lets the receiver ask, and a parameter server calls a worker for its gradients.
    """
    told = subprocess.run(["ss", "-tniHpO"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in told.splitlines() if any(f"pid={pid}," in line for pid in pids)]
    return sum(int(number) for line in lines for number in re.findall(r"bytes_(?:sent|received):(\d+)", line))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=["keras", "tf_keras"])
    parser.add_argument("optimizer", choices=["adagrad", "adam"])
    parser.add_argument("rows", type=int)
    parser.add_argument("--lazy", action="store_true")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", GRPC_FAIL_FAST="use_caller", CUDA_VISIBLE_DEVICES="-1")
    with cluster_of(1, 2) as (cluster, pids):
        result = measured(cluster, pids, options)
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
    os._exit(0)  # the servers are gone


def measured(cluster: dict[str, list[str]], pids: Sequence[int], options: argparse.Namespace) -> dict[str, float]:
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    if options.library == "keras":
        import keras

        import paceline

        strategy: Any = paceline.ParameterServerStrategy(resolver, partitioner, lazy_rows=options.lazy)
        optimizers = keras.optimizers
    else:
        import tf_keras as keras

        strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner)
        optimizers = keras.optimizers.legacy  # the new ones have no sharded variables
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        table = keras.layers.Embedding(options.rows, COLUMNS)
        table.build((None,))
        optimizer = {"adagrad": optimizers.Adagrad, "adam": optimizers.Adam}[options.optimizer](0.1)
        if options.library == "keras":
            optimizer.build(table.trainable_variables)

    def step() -> None:
        ids = tf.random.uniform((IDS,), maxval=options.rows, dtype=tf.int64)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((table(ids) - 1.0) ** 2)
        variables = table.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    function = tf.function(lambda: strategy.run(step))

    def run() -> float:
        began = time.perf_counter()
        coordinator.schedule(function)
        coordinator.join()
        return time.perf_counter() - began

    for _ in range(WARM_UP_STEPS):
        run()
    bytes_before = bytes_of(pids)
    seconds = [run() for _ in range(options.steps)]
    num_bytes = (bytes_of(pids) - bytes_before) / options.steps
    return {"milliseconds": 1e3 * statistics.median(seconds), "bytes": num_bytes}


if __name__ == "__main__":
    main()
