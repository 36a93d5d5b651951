"""Trains with code of docs/trackers.md, or with what users write without that page: tracked.py NAME [CODE]."""

import os
import sys

import keras
import numpy as np
import tensorflow as tf

rows = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
keras.utils.set_random_seed(0)
data = tf.data.Dataset.from_tensor_slices((rows, rows.sum(1, keepdims=True))).shuffle(64, seed=1).batch(16)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")

if "mlflow" in sys.argv[1]:
    import mlflow

    mlflow.set_tracking_uri("file:" + os.path.abspath("mlruns"))  # noqa: PTH100

if sys.argv[1] == "everywhere: wandb, mlflow":
    import wandb

    wandb.init(project="digits")
    mlflow.start_run()
    model.fit(data, epochs=1, verbose=0)
else:
    exec(sys.argv[2])
