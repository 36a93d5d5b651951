"""Trains on the digits with parameter servers, as a user would; prints what has come out beside one process.

What a script makes before its strategy works after it, too; training then is refused.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import paceline
from paceline.errors import ConfigurationError

with np.load(Path(__file__).parents[2] / "examples" / "data" / "mnist_10k.npz") as digits:
    x, y = digits["x_train"][:2560, ..., None].astype("float32") / 255, digits["y_train"][:2560].astype("int64")
    x_test, y_test = digits["x_test"][:500, ..., None].astype("float32") / 255, digits["y_test"][:500].astype("int64")

early = keras.metrics.SparseCategoricalAccuracy(name="early")
helper = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Rescaling(2.0), keras.layers.Dense(1)])
half = tf.Variable(0.5)
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.range(10), tf.range(10)), -1)
labels = keras.layers.IntegerLookup(vocabulary=[*range(10)], num_oov_indices=0)


@tf.function
def as_they_are(images):
    return helper.layers[0](images) * half


early_data = tf.data.Dataset.from_tensor_slices((x_test, y_test.astype("int32"))).batch(64)
early_data = early_data.map(lambda x, y: (as_they_are(x), labels(table.lookup(y)))).cache()
read = iter(early_data)
next(read)
helper.compile("sgd", "mse")
alone_refusal = ""
try:
    if paceline.is_chief():  # the evaluator's first `fit` follows the snapshots
        helper.fit(x, y, verbose=0)
except ConfigurationError as fault:
    alone_refusal = str(fault)
strategy = paceline.ParameterServerStrategy()
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(4, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], steps_per_execution=int(sys.argv[1]))
history = model.fit(x, y, batch_size=64, epochs=2, verbose=2, validation_data=(x_test, y_test)).history
model.save(sys.argv[2])
alone = keras.models.load_model(sys.argv[2])
with strategy.scope():
    of_early = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
    of_early.compile("sgd", loss, metrics=[early])
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy) if paceline.is_chief() else None


@tf.function
def calling_python(one):
    return tf.py_function(lambda one: one * 2, [one], tf.float32)


@tf.function
def failing(one):
    tf.debugging.assert_less(one, 0.0, message="too large")


def fault_of_scheduled(function, times):
    try:
        for _ in range(times):
            coordinator.schedule(function, (tf.constant(1.0),))
        coordinator.join()
    except (ValueError, tf.errors.OpError) as fault:
        return str(fault)
    return ""


told = {
    "refusal": alone_refusal,
    "python": fault_of_scheduled(calling_python, 1) if paceline.is_chief() else "",
    "failing": fault_of_scheduled(failing, 5) if paceline.is_chief() else "",
    "early metric": of_early.fit(early_data, verbose=0).history["early"],
    "early rows": sum(len(y) for _, y in read),
    "of early data": model.evaluate(early_data, verbose=0),
    "predicted": len(model.predict(early_data, verbose=0)),
    "iterations": int(model.optimizer.iterations.numpy()),
    "history": {name: [float(value) for value in values] for name, values in history.items()},
    "evaluated": model.evaluate(x_test, y_test, verbose=0),
    "expected": alone.evaluate(x_test, y_test, verbose=0),
    "difference": float(np.abs(model.predict(x_test, verbose=0) - alone.predict(x_test, verbose=0)).max()),
}
print("told " + json.dumps(told), flush=True)
