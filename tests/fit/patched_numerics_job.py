"""A `fit`, then a loop with `strategy.run`: prints which numerics of Keras and TensorFlow are patched after each."""

import inspect
import json
import os
from types import FunctionType, ModuleType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from paceline import rank
from paceline.fit.compat import loss_module, random_module


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


keras.utils.set_random_seed(1)
rows = np.random.default_rng(0).normal(size=(20, 6)).astype("float32")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)])
    model.add(keras.layers.Dense(1))
    model.compile("adam", "mse", metrics=["mae"])
model.fit(rows, rows[:, 0], batch_size=8, verbose=0)
model.evaluate(rows, rows[:, 0], batch_size=8, verbose=0)
model.predict(rows, batch_size=8, verbose=0)
model.train_on_batch(rows, rows[:, 0])
OF_LOOPS = ("/fit/replica_loops/", "/strategy/nested_functions.py")
told = {"fit": patched_numerics("/src/paceline/"), "loops in fit": patched_numerics(*OF_LOOPS)}
strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
told["loops"] = patched_numerics(*OF_LOOPS)
if rank() == 0:
    print("patched", json.dumps(told))
