"""``patched_numerics_job.py CASE``: prints which numerics of Keras and TensorFlow are patched after the case."""

import inspect
import json
import os
import signal
import sys
from types import FunctionType, ModuleType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from paceline import rank
from paceline.fit.compat import loss_module, random_module
from paceline.fit.snapshots import resumable_fit

OF_LOOPS = ("/fit/replica_loops/", "/strategy/nested_functions.py")


def is_patched(attribute: Any, place: str) -> bool:
    """Whether a function of Paceline's is called, around the original or by the decorators around it.

    Args:
        attribute: Of a class or module.
        place: In the name of the function's file.
    """
    while attribute is not None:
        function = getattr(attribute, "__func__", attribute)
        code = getattr(function, "__code__", None)
        cells = getattr(function, "__closure__", None) or ()
        if code is not None and place in code.co_filename:
            return True
        inner = [cell.cell_contents for cell in cells if isinstance(cell.cell_contents, FunctionType)]
        if any(place in one.__code__.co_filename for one in inner):
            return True
        attribute = getattr(attribute, "__wrapped__", None)
    return False


def classes_of(module: ModuleType) -> list[type]:
    return [one for one in vars(module).values() if inspect.isclass(one)]


def patched_numerics(*places: str) -> list[str]:
    owners: list[Any] = [
        *classes_of(keras.losses),
        *classes_of(keras.metrics),
        *classes_of(keras.optimizers),
        *classes_of(keras.random),
        keras.Variable,
        *classes_of(keras.layers),
        keras.Layer,
        tf.GradientTape,
        keras.Model,
        type(tf.function(lambda: None)),
        tf.nn,
        tf.random,
        tf.math,
        tf.raw_ops,
        loss_module,
        random_module,
    ]
    found = set()
    for owner in owners:
        for base in owner.__mro__ if inspect.isclass(owner) else [owner]:
            for name, attribute in vars(base).items():
                if callable(attribute) and any(is_patched(attribute, place) for place in places):
                    found.add(f"{base.__name__.split('.')[-1]}.{name}")
    return sorted(found)


def fit_then_loop(rows: Any) -> dict[str, list[str]]:
    """A `fit`, then a loop with `strategy.run`."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)])
        model.add(keras.layers.Dense(1))
        model.compile("adam", "mse", metrics=["mae"])
    model.fit(rows, rows[:, 0], batch_size=8, verbose=0)
    model.evaluate(rows, rows[:, 0], batch_size=8, verbose=0)
    model.predict(rows, batch_size=8, verbose=0)
    model.train_on_batch(rows, rows[:, 0])
    told = {"fit": patched_numerics("/src/paceline/"), "loops in fit": patched_numerics(*OF_LOOPS)}
    strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
    return told | {"loops": patched_numerics(*OF_LOOPS)}


class BuiltByItsStep(keras.Model):  # type: ignore[misc]  # Keras is untyped
    """Only its `train_step` calls the network: nothing is built from the shapes of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.network = keras.Sequential([keras.layers.Dense(3, "tanh"), keras.layers.Dense(6)])

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = keras.ops.mean((self.network(data) - data) ** 2)
        weights = self.network.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


class KilledOnce(keras.callbacks.Callback):  # type: ignore[misc]
    """One rank, in the first generation, when there are snapshots."""

    same_on_all_ranks = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1 and os.environ["PACELINE_GENERATION"] == "1":
            for manager in resumable_fit._process.managers.values():
                assert manager.finish(60)
            if rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)


def resumed_fit(rows: Any) -> dict[str, list[str]]:
    """A `fit` that builds the model before its first step, to restore a snapshot."""
    model = BuiltByItsStep()
    model.compile("sgd")
    model.fit(rows, batch_size=8, verbose=0, callbacks=[KilledOnce()])
    return {"loops": patched_numerics(*OF_LOOPS)}


keras.utils.set_random_seed(1)
told = {case.__name__: case for case in (fit_then_loop, resumed_fit)}[sys.argv[1]](
    np.random.default_rng(0).normal(size=(20, 6)).astype("float32")
)
if rank() == 0:
    print("patched", json.dumps(told))
