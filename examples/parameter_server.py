"""Both parts of TensorFlow's tutorial on parameter servers: `fit`, and a loop of one's own with a divided embedding.

    python examples/parameter_server.py

The cluster lives in the threads of this process, as in the tutorial: two workers, two parameter servers. Elsewhere they
are processes (`paceline run --workers 2 --ps 2`), and `ParameterServerStrategy()` needs no cluster resolver.
"""

import multiprocessing
import os
import random
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")

import keras
import tensorflow as tf

import paceline

NUM_WORKERS, NUM_SERVERS = 2, 2
MIN_SHARD_BYTES = 256 << 10
COLUMNS = 16384
ANIMALS = ["cat", "dog", "horse", "cow", "trout", "salmon", "carp", "pike"]
LEGGED = ANIMALS[:4]
BATCH_ROWS = 32


def cluster_in_process() -> tf.distribute.cluster_resolver.ClusterResolver:
    """Starts all servers in threads of this process."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(NUM_WORKERS + NUM_SERVERS)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    cluster = tf.train.ClusterSpec({"worker": addresses[:NUM_WORKERS], "ps": addresses[NUM_WORKERS:]})
    config = tf.compat.v1.ConfigProto()
    if multiprocessing.cpu_count() < NUM_WORKERS + 1:  # all servers of a process share one pool of threads
        config.inter_op_parallelism_threads = NUM_WORKERS + 1
    for role in cluster.jobs:
        for index in range(cluster.num_tasks(role)):
            tf.distribute.Server(cluster, job_name=role, task_index=index, config=config, protocol="grpc")
    return tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")


def fit_part(strategy: tf.distribute.Strategy, epochs: int) -> float:
    """The loss of the last epoch."""
    x, y = tf.random.uniform((10, 10)), tf.random.uniform((10,))
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(10).repeat().batch(64).prefetch(2)
    with strategy.scope():
        model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(), "mse", steps_per_execution=10)
    with TemporaryDirectory() as folder:
        callbacks = [
            keras.callbacks.TensorBoard(str(Path(folder, "logs"))),
            keras.callbacks.ModelCheckpoint(str(Path(folder, "checkpoint.weights.h5")), save_weights_only=True),
            keras.callbacks.BackupAndRestore(str(Path(folder, "backup"))),
        ]
        history = model.fit(dataset, epochs=epochs, steps_per_epoch=20, callbacks=callbacks, verbose=0)
        assert Path(folder, "checkpoint.weights.h5").exists()
    assert int(model.optimizer.iterations.numpy()) == 20 * epochs
    return float(history.history["loss"][-1])


def loop_part(strategy: tf.distribute.Strategy, epochs: int, steps_per_epoch: int) -> float:
    """How many of the last epoch's answers to "has it legs?" were right."""
    with strategy.scope():
        animal_ids = keras.layers.StringLookup(vocabulary=ANIMALS, num_oov_indices=0, mask_token=None)
        answer_ids = keras.layers.StringLookup(vocabulary=["no", "yes"], num_oov_indices=0, mask_token=None)

    def examples(count: int = 200) -> dict[str, list[str]]:
        animals = random.choices(ANIMALS, k=count)
        return {"animals": animals, "answers": ["yes" if animal in LEGGED else "no" for animal in animals]}

    def dataset_fn(context: tf.distribute.InputContext | None) -> tf.data.Dataset:
        del context  # every worker draws its own
        dataset = tf.data.Dataset.from_tensor_slices(examples()).shuffle(200).repeat().batch(BATCH_ROWS)
        return dataset.map(lambda row: (animal_ids(row["animals"]), tf.cast(answer_ids(row["answers"]), tf.float32)))

    with strategy.scope():
        ids = keras.Input((), dtype="int64")
        table = keras.layers.Embedding(len(ANIMALS), COLUMNS)
        model = keras.Model(ids, keras.layers.Dense(1, "sigmoid")(table(ids)))
        optimizer = keras.optimizers.RMSprop(0.001)
        optimizer.build(model.trainable_variables)
        accuracy = keras.metrics.Accuracy()

    # Half of the rows on each server, as the partitioner has said.
    first, second = table.weights
    assert first.shape == second.shape == (len(ANIMALS) // 2, COLUMNS)
    assert first.value.device == "/job:ps/replica:0/task:0/device:CPU:0"
    assert second.value.device == "/job:ps/replica:0/task:1/device:CPU:0"

    @tf.function
    def step_fn(iterator: tf.distribute.DistributedIterator) -> tf.Tensor:
        def replica_fn(animals: tf.Tensor, answers: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                told = model(animals, training=True)[:, 0]
                rows = keras.losses.binary_crossentropy(answers[:, None], told[:, None])
                loss = keras.ops.mean(rows)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            accuracy.update_state(answers, tf.cast(told > 0.5, tf.float32))
            return loss

        losses = strategy.run(replica_fn, args=next(iterator))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    @tf.function
    def per_worker_dataset_fn() -> tf.data.Dataset:
        return strategy.distribute_datasets_from_function(dataset_fn)

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
    for _ in range(epochs):
        accuracy.reset_state()
        for _ in range(steps_per_epoch):
            coordinator.schedule(step_fn, args=(iterator,))
        coordinator.join()
    # One step more, whose result is fetched.
    loss = coordinator.schedule(step_fn, args=(iterator,)).fetch()
    assert loss >= 0.0
    assert int(optimizer.iterations.numpy()) == epochs * steps_per_epoch + 1
    return float(accuracy.result())


def main(epochs: int = 4, steps_per_epoch: int = 5) -> None:
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(MIN_SHARD_BYTES, max_shards=NUM_SERVERS)
    strategy = paceline.ParameterServerStrategy(cluster_in_process(), variable_partitioner=partitioner)
    print(f"fit: loss {fit_part(strategy, epochs):.3f}", flush=True)
    print(f"loop: accuracy {loop_part(strategy, epochs, steps_per_epoch):.3f}", flush=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
