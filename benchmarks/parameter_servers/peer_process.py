"""A process of the peer's cluster, which TF_CONFIG names: chief, worker or parameter server.

TensorFlow's own ParameterServerStrategy under tf_keras's `fit`, and under a loop over `ClusterCoordinator.schedule`.
"""

import functools
import os
from collections.abc import Callable

import digits
import tensorflow as tf
import tf_keras as keras

L = keras.layers


class Measured(keras.callbacks.Callback):
    """Tells when what is measured begins and ends."""

    def on_epoch_begin(self, epoch, logs=None) -> None:
        if epoch == 1:
            digits.say("begin")

    def on_train_end(self, logs=None) -> None:
        digits.say("end")


def layers() -> keras.Model:
    return keras.Sequential(
        [
            L.InputLayer((28, 28)),
            L.Reshape((28, 28, 1)),
            L.Conv2D(32, 3, activation="relu"),
            L.Flatten(),
            L.Dense(128, activation="relu"),
            L.Dense(10),
        ]
    )


def fit_of(strategy: tf.distribute.Strategy, steps_per_execution: int, num_steps: int) -> Callable[[], None]:
    """A turn of tf_keras's `fit`, which knows only datasets that workers read by themselves."""
    with strategy.scope():
        model = layers()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.SGD(0.01)
        model.compile(optimizer, loss, metrics=["accuracy"], steps_per_execution=steps_per_execution)
    data = keras.utils.experimental.DatasetCreator(lambda context: digits.dataset())
    return functools.partial(
        model.fit, data, epochs=digits.EPOCHS, steps_per_epoch=num_steps, verbose=0, callbacks=[Measured()]
    )


def loop_of(strategy: tf.distribute.Strategy, steps_per_execution: int, num_steps: int) -> Callable[[], None]:
    """A turn of the bare loop: no metrics, no callbacks; nothing comes back but the newest loss."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = layers()
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
    iterator = iter(coordinator.create_per_worker_dataset(digits.dataset))

    def step(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def execution(iterator):
        loss = 0.0
        for _ in tf.range(steps_per_execution):
            loss = strategy.run(step, args=(next(iterator),))
        return loss

    @tf.function
    def one_step(iterator):
        return strategy.run(step, args=(next(iterator),))

    function = one_step if steps_per_execution == 1 else execution

    def turn() -> None:
        for epoch in range(digits.EPOCHS):
            if epoch == 1:
                digits.say("begin")
            for _ in range(num_steps // steps_per_execution):
                coordinator.schedule(function, args=(iterator,))
            coordinator.join()
        digits.say("end")

    return turn


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if resolver.task_type != "chief":
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=max(4, os.cpu_count() or 1))  # as Paceline's
        cluster = resolver.cluster_spec()
        tf.distribute.Server(cluster, resolver.task_type, resolver.task_id, protocol="grpc", config=config).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    fits = {f"fit {k}": fit_of(strategy, k, n) for k, n in digits.STEPS_PER_EPOCH.items()}
    loops = {f"loop {k}": loop_of(strategy, k, n) for k, n in digits.STEPS_PER_EPOCH.items()}
    digits.take_turns({**fits, **loops})


main()
