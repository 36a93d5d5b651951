"""``python serving_task.py [END]``: a task of the cluster in TF_CONFIG, by hand.

All make a strategy, but ``plain`` servers are TensorFlow's own. The chief adds 1 to a variable of the server in steps
of the workers, and ends as END says.
"""

import sys
import time

import tensorflow as tf

import paceline

first = tf.data.Dataset.range(4)
"""Made before the strategy."""


def train(strategy: paceline.ParameterServerStrategy) -> tf.Variable:
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        count = tf.Variable(0.0)

    @tf.function
    def add() -> None:
        count.assign_add(1.0)

    for _ in first:
        coordinator.schedule(add)
    coordinator.join()
    print(f"trained {int(count.numpy())}", flush=True)
    return count


if __name__ == "__main__":
    end = sys.argv[1]
    told = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if end == "plain":  # as in TensorFlow's tutorial
        tf.distribute.Server(told.cluster_spec(), told.task_type, told.task_id, protocol="grpc").join()
    resolver = told if end == "raise" else None
    count = train(paceline.ParameterServerStrategy(resolver))
    match end:
        case "raise":
            raise ValueError("the script failed")
        case "exit":
            sys.exit(7)
        case "leave":
            raise SystemExit(7)
        case "wait":
            time.sleep(600)
        case "read":
            while count.numpy():
                time.sleep(0.1)
