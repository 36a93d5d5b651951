"""python trains_on_hosts.py FOLDER [alone]: a user's script, however it is started; saves what it has learned."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import paceline

EPOCHS = 2

keras.config.set_floatx("float64")
alone = sys.argv[2:] == ["alone"]
strategy = tf.distribute.get_strategy() if alone else paceline.MultiWorkerMirroredStrategy()
assert alone or strategy.num_replicas_in_sync == paceline.world_size() > 1
keras.utils.set_random_seed(5)
generator = np.random.default_rng(0)
rows = generator.normal(size=(37, 64)), generator.integers(0, 4, 37)
data = tf.data.Dataset.from_tensor_slices(rows).shuffle(37).batch(16)
with strategy.scope():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, "tanh"), keras.layers.Dense(4)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(data, epochs=EPOCHS, verbose=0).history
rank = paceline.rank()
np.savez(
    Path(sys.argv[1]) / f"rank{rank}.npz",
    weights=np.concatenate([np.ravel(value) for value in model.get_weights()]),
    loss=history["loss"],
    gradient_bytes=8 * model.count_params() * EPOCHS * len(data),
)
