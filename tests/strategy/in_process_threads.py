"""Two workers and a parameter server in this process, with so many inter-op threads: python in_process_threads.py N."""

import sys
from pathlib import Path

import tensorflow as tf

import paceline

sys.path.insert(0, str(Path(__file__).parents[1]))
from ports import held_ports

with held_ports(3) as ports:
    addresses = [f"127.0.0.1:{port}" for port in ports]
    spec = tf.train.ClusterSpec({"worker": addresses[:2], "ps": addresses[2:]})
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=int(sys.argv[1]))
    for role, index in (("worker", 0), ("worker", 1), ("ps", 0)):
        tf.distribute.Server(spec, job_name=role, task_index=index, protocol="grpc", config=config)
    strategy = paceline.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(0.0)
    step = tf.function(lambda: strategy.run(lambda: variable.assign_add(1.0)))
    for _ in range(100):
        coordinator.schedule(step)
    coordinator.join()
    print(f"after 100 steps: {variable.numpy()}", flush=True)
