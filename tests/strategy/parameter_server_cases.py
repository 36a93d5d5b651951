"""Cases of `test_parameter_server.py`, each with models of its own on the servers of this process."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from servers_in_process import strategy as strategy_of

import paceline
from paceline.errors import ConfigurationError


def run_case(name: str, *arguments: str) -> Any:
    return globals()[name](*arguments)


def round_robin() -> Any:
    """On which server each weight and each variable of the optimizer lies."""
    strategy = strategy_of(num_servers=2)
    assert isinstance(strategy, tf.distribute.Strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    slots = [
        [variable for variable in optimizer.variables if variable.name.startswith(weight.path.replace("/", "_"))]
        for weight in model.weights
    ]
    assert all(len(of_one) == 2 for of_one in slots)
    return [_server(weight) for weight in model.weights], [[_server(slot) for slot in of_one] for of_one in slots]


def custom_loop(num_steps: str) -> Any:
    """A loop of a user: steps that are scheduled, each on rows of the worker's own dataset."""
    keras.utils.set_random_seed(1)
    strategy = strategy_of(num_servers=2)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
        mean = keras.metrics.MeanSquaredError()

    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")

    def loss_of_all() -> float:
        return float(np.mean((keras.ops.convert_to_numpy(model(x)) - x.sum(1, keepdims=True)) ** 2))

    def rows(context: Any) -> tf.data.Dataset:
        del context
        return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).shuffle(64).repeat().batch(16)

    @tf.function
    def per_worker() -> Any:
        return strategy.distribute_datasets_from_function(rows)

    @tf.function
    def step(iterator: Any) -> Any:
        def replica(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                predicted = model(x, training=True)
                loss = tf.reduce_mean((predicted - y) ** 2)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            mean.update_state(y, predicted)
            return loss

        return strategy.run(replica, args=next(iterator))

    before = loss_of_all()
    iterator = iter(coordinator.create_per_worker_dataset(per_worker))
    losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(int(num_steps))]
    coordinator.join()
    assert coordinator.done()
    return before, loss_of_all(), [float(loss.fetch()) for loss in losses], float(mean.result())


def options_kept() -> Any:
    strategy = strategy_of(max_staleness=3, lazy_rows=True)
    try:
        strategy_of(max_staleness=-1)
    except ValueError as fault:
        return (
            strategy.max_staleness,
            strategy.lazy_rows,
            isinstance(strategy, paceline.ParameterServerStrategy),
            str(fault),
        )
    return None


def too_few_threads() -> Any:
    """What is said of more workers than the servers here have threads for; TensorFlow's version: nobody can count."""
    tf.config.list_logical_devices()
    if not any(path.read_text().startswith("tf_Compute") for path in Path("/proc/self/task").glob("*/comm")):
        return tf.__version__
    addresses = {"worker": [f"127.0.0.1:{number}" for number in range(1, 5001)], "ps": ["127.0.0.1:5001"]}
    strategy_of()  # the servers are there
    spec = tf.train.ClusterSpec(addresses)
    try:
        paceline.ParameterServerStrategy(tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc"))
    except ConfigurationError as fault:
        return str(fault)
    return ""


def _server(variable: Any) -> int:
    device = tf.DeviceSpec.from_string(variable.value.device)
    assert device.job == "ps"
    return int(device.task)
