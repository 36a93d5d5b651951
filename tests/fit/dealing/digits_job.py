"""Trains on the digits with parameter servers, as a user would; prints what has come out beside one process.

A metric that was made before the strategy is refused.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import paceline

with np.load(Path(__file__).parents[3] / "examples" / "data" / "mnist_10k.npz") as digits:
    x, y = digits["x_train"][:2560, ..., None].astype("float32") / 255, digits["y_train"][:2560].astype("int64")
    x_test, y_test = digits["x_test"][:500, ..., None].astype("float32") / 255, digits["y_test"][:500].astype("int64")

early = keras.metrics.SparseCategoricalAccuracy(name="early")
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
try:
    of_early.fit(x, y, verbose=0)
    refusal = ""
except ValueError as fault:
    refusal = str(fault)
told = {
    "refusal": refusal,
    "iterations": int(model.optimizer.iterations.numpy()),
    "history": {name: [float(value) for value in values] for name, values in history.items()},
    "evaluated": model.evaluate(x_test, y_test, verbose=0),
    "expected": alone.evaluate(x_test, y_test, verbose=0),
    "difference": float(np.abs(model.predict(x_test, verbose=0) - alone.predict(x_test, verbose=0)).max()),
}
print("told " + json.dumps(told), flush=True)
