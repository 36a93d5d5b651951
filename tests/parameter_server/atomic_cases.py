"""Cases of `test_atomic_updates.py`, on servers in this process."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[1] / "strategy"))
from servers_in_process import strategy as strategy_of


def run_case(name: str, *arguments: str) -> Any:
    return globals()[name](*arguments)


def added_by_two_workers(num_steps: str) -> Any:
    """What a counter, a vector and the optimizer's iterations are after so many concurrent additions."""
    strategy = strategy_of(num_servers=2)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        counter = keras.Variable(0, dtype="int64", trainable=False)
        vector = keras.Variable(np.zeros(3, "float32"), trainable=False)
        weight = keras.Variable(np.zeros((), "float32"))
        optimizer = keras.optimizers.SGD(0.0)
        optimizer.build([weight])

    def replica() -> None:
        counter.assign_add(1)
        vector.assign_sub(1.0)  # every element
        optimizer.apply([tf.constant(1.0)], [weight])

    @tf.function
    def step() -> None:
        strategy.run(replica)

    for _ in range(int(num_steps)):
        coordinator.schedule(step)
    coordinator.join()
    assert int(counter.assign_add(1)) == int(num_steps) + 1
    return int(counter.numpy()), vector.numpy().tolist(), int(optimizer.iterations.numpy())
