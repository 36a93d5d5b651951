"""Draws everything twice: with seeds of its own, and without any. No global seed of TensorFlow's but at the end.

python own_seeds.py DIRECTORY                              plain
TF_CONFIG=... python own_seeds.py DIRECTORY by-hand        one of two processes started by hand
paceline run -n 1 own_seeds.py DIRECTORY [dies]            dies in its first generation, when all is drawn

Writes DIRECTORY/<rank>.<generation>.json.
"""

import json
import os
import random
import sys
from pathlib import Path

is_standby = "tensorflow" in sys.modules  # which imports it ahead
random.seed(5)  # before TensorFlow and Keras, whose import draws from it

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402  # see above

rank, generation = os.environ.get("PACELINE_RANK", "0"), os.environ.get("PACELINE_GENERATION", "1")
if "by-hand" in sys.argv:
    import paceline

    rank = str(paceline.MultiWorkerMirroredStrategy().cluster_resolver.task_id)


@tf.function
def step() -> list[tf.Tensor]:
    return [tf.random.uniform([3], seed=4), tf.random.normal([2], seed=0), tf.random.shuffle(tf.range(9), seed=2)]


@tf.function
def unseeded_step() -> list[tf.Tensor]:
    return [tf.random.uniform([3]), tf.random.normal([2]), tf.random.shuffle(tf.range(9))]


def orders(seed: int | None) -> list[list[int]]:
    data = tf.data.Dataset.range(20).shuffle(20, seed=seed)
    noisy = tf.data.Dataset.range(4).map(lambda row: tf.random.uniform([], 0, 1000, tf.int64, seed=seed))
    return [[int(row) for row in source] for source in (data, data, noisy)]


seeded = {
    "layer": keras.layers.Dense(3)(np.ones((2, 2))),  # by Python's generator
    "python": random.random(),
    "numpy": np.random.default_rng(3).random(),
    "state": np.random.RandomState(3).rand(),
    "orders": orders(11),
    "eager": [tf.random.uniform([3], seed=4), tf.random.uniform([3], seed=4)],
    "step": [step(), step()],
    "keras": keras.random.normal([3], seed=keras.random.SeedGenerator(3)),
    "dropout": keras.layers.Dropout(0.5, seed=3)(np.ones(9), training=True),
    "initializer": keras.initializers.GlorotUniform(seed=2)((2, 2)),
}
unseeded = {
    "numpy": [np.random.default_rng().random(), np.random.rand()],
    "orders": orders(None),
    "eager": [tf.random.uniform([3]), tf.random.uniform([3])],
    "step": [unseeded_step(), unseeded_step()],
}
tf.random.set_seed(7)
seeded["global"] = [orders(11), orders(None), tf.random.uniform([3]), tf.random.uniform([3], seed=4)]
seeded["global step"] = tf.function(lambda: [tf.random.uniform([3]), tf.random.uniform([3], seed=4)])()

numbers = tf.nest.map_structure(lambda value: np.asarray(value).tolist(), {"seeded": seeded, "unseeded": unseeded})
told = {**numbers, "is standby": is_standby}
(Path(sys.argv[1]) / f"{rank}.{generation}.json").write_text(json.dumps(told))
if "dies" in sys.argv and generation == "1":
    from paceline.events.bus import bus
    from paceline.events.worker_events import StepDone

    bus.emit(StepDone(0, 1, 0))  # upon which its agent starts the standby
    os._exit(3)
