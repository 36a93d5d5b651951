"""What two workers refuse, on both: the cases of a warm world, by code."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from refusal import Refusal, told

import paceline
from paceline.errors import ConfigurationError, DesynchronizedError

X, Y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)


def run_case(code: str) -> list[str]:
    return told(ROWS, code)


def _model(width: int = 1) -> Any:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(width)])
    model.compile("sgd", "mse")
    return model


def _batches(*arrays: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(arrays).batch(4)


def _integer_mean() -> None:
    strategy = paceline.MultiWorkerMirroredStrategy()

    with strategy.scope():
        weight = keras.layers.Layer().add_weight(
            shape=(), dtype="int32", initializer="zeros", trainable=False, aggregation="mean"
        )

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.run(lambda x: weight.assign(tf.cast(tf.reduce_sum(x), tf.int32)), args=(batch,))

    for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(X).batch(4)):
        step(batch)


def _backups_of_each_rank() -> None:
    """As if each rank had a directory of its own."""

    class Restored(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            self.model._initial_epoch = 1 - paceline.rank()  # as Keras's callback does

    callbacks = [keras.callbacks.BackupAndRestore("backup"), Restored()]
    _model().fit(X, Y, epochs=3, verbose=0, callbacks=callbacks)


class _StopsOnOneRank(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = paceline.rank() == 1


def _other_shapes() -> None:
    paceline.MultiWorkerMirroredStrategy().reduce("SUM", tf.ones(paceline.rank() + 1), axis=None)


def _outside_of_run() -> None:
    with paceline.MultiWorkerMirroredStrategy().scope():
        model = _model()
    with tf.GradientTape() as tape:
        loss = keras.ops.sum(model(X))
    model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


def _constant_rows() -> None:
    strategy = paceline.MultiWorkerMirroredStrategy()

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.run(lambda x: x + tf.ones((4, 4)), args=(batch,))

    for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(X).batch(4)):
        step(batch)


ROWS = [
    Refusal("aggregation", _integer_mean, ValueError, "a weight of dtype int32", 'use aggregation="sum"'),
    Refusal(
        "backup-differs",
        _backups_of_each_rank,
        DesynchronizedError,
        "1, 0 on ranks",
        "a directory that all ranks share",
    ),
    Refusal(
        "callbacks-differ",
        lambda: _model().fit(X, Y, batch_size=4, verbose=0, callbacks=[_StopsOnOneRank()]),
        DesynchronizedError,
        "by _StopsOnOneRank",
        "two_workers.py:",
        {"PACELINE_STRICT": "1"},
    ),
    Refusal(
        "data-differs",
        lambda: _model().fit(_batches(X + paceline.rank(), Y), verbose=0),
        DesynchronizedError,
        "differs between rank 0 and rank(s) 1",
        "Set a seed",
    ),
    Refusal(
        "data-service",
        lambda: paceline.data.service(_batches(X, Y)),
        ConfigurationError,
        "no data workers",
        "--data-workers 1",
    ),
    Refusal(
        "no-strategy",
        _outside_of_run,
        RuntimeError,
        "this optimizer step is outside strategy.run, on one of 2 workers",
        "Train with model.fit",
    ),
    Refusal(
        "not-batched",
        lambda: _model().fit(tf.data.Dataset.from_tensor_slices((X, Y[:, 0])), verbose=0),
        ValueError,
        "the dataset gives single examples, not batches",
        "dataset.batch(",
    ),
    Refusal(
        "ranks-differ",
        lambda: _model(1 + paceline.rank()).fit(X, Y, verbose=0),
        DesynchronizedError,
        "(4, 1) float32 on rank 0, (4, 2) float32 on rank 1",
        "look for code that depends on the rank",
    ),
    Refusal(
        "rows", _constant_rows, ValueError, "of the 2 workers computes its part of a batch's rows", "keras.ops.shape"
    ),
    Refusal(
        "rows-differ",
        lambda: _model().fit(tf.data.Dataset.from_tensors((X, Y[:3])), verbose=0),
        ValueError,
        "have different lengths along axis 0: data[0] (8, 4), data[1] (3, 1)",
        "add .batch(global_batch_size)",
    ),
    Refusal(
        "steps-per-epoch",
        lambda: _model().fit(_batches(X, Y), steps_per_epoch=9, verbose=0),
        ValueError,
        "steps_per_epoch=9, but the data has only 2 batches",
        "Use steps_per_epoch=2",
    ),
    # The last one: in a world whose ranks have been in different calls, faults of shapes are not looked into.
    Refusal(
        "collectives-differ",
        _other_shapes,
        DesynchronizedError,
        "other shapes",
        "Lines of the script: rank 0, 1: two_workers.py:",
    ),
]
