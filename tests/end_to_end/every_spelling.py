"""paceline run --workers 2 every_spelling.py DIRECTORY: the strategies that scripts name, each in its own words.

No line of this file knows of Paceline, beside the two variables that the launcher documents.
"""

import json
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow import distribute
from tensorflow.compat.v2.distribute import MultiWorkerMirroredStrategy
from training import dataset, flat, model_and_compile, one_batch, save, train

DIRECTORY = sys.argv[1]
RANK = int(os.environ["PACELINE_RANK"])

made_early = tf.constant([1.0, 2.0]) + 1.0
data_made_early = dataset()
drawn = {
    "python": random.random(),
    "numpy": np.random.rand(),
    "generator": np.random.default_rng().random(),
    "tensorflow": tf.random.uniform([]).numpy(),
    "order": [int(number) for number in tf.data.Dataset.range(20).shuffle(20)],
    "words": [hash(word) for word in ("one", "two")],
}
save(DIRECTORY, "drawn", RANK, drawn)

# Before any strategy is named: so far this is a script without one.
save(DIRECTORY, "no_strategy", RANK, train())
keras.utils.set_random_seed(100 + RANK)  # each rank differently, as scripts do that mean well
model = model_and_compile()
model.optimizer.learning_rate = 0.0
model.fit(*one_batch(), verbose=0)
save(DIRECTORY, "initial_weights_without_strategy", RANK, {"weights": flat(model)})

CollectiveOptions = tf.distribute.experimental.CommunicationOptions
Implementation = tf.distribute.experimental.CommunicationImplementation
Collective = tf.distribute.experimental.CollectiveCommunication


def with_own_tf_config() -> Any:
    cluster = {"worker": ["localhost:12345", "localhost:23456"]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    return tf.distribute.MultiWorkerMirroredStrategy()


SPELLINGS: dict[str, Callable[[], Any]] = {
    "multi_worker": lambda: tf.distribute.MultiWorkerMirroredStrategy(),
    "multi_worker_nccl": lambda: tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=CollectiveOptions(implementation=Implementation.NCCL)
    ),
    "multi_worker_ring": lambda: tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=CollectiveOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
    ),
    "experimental": lambda: tf.distribute.experimental.MultiWorkerMirroredStrategy(),
    "experimental_positional": lambda: tf.distribute.experimental.MultiWorkerMirroredStrategy(Collective.RING),
    "experimental_named": lambda: tf.distribute.experimental.MultiWorkerMirroredStrategy(communication=Collective.AUTO),
    "from_tensorflow_import_distribute": lambda: distribute.MultiWorkerMirroredStrategy(),
    "from_tensorflow_compat_v2_distribute_import": lambda: MultiWorkerMirroredStrategy(),
    "compat_v2": lambda: tf.compat.v2.distribute.MultiWorkerMirroredStrategy(),
    "compat_v2_experimental": lambda: tf.compat.v2.distribute.experimental.MultiWorkerMirroredStrategy(),
    "mirrored": lambda: tf.distribute.MirroredStrategy(),
    "mirrored_cpus": lambda: tf.distribute.MirroredStrategy(devices=["CPU:0", "CPU:1"]),
    "mirrored_gpus": lambda: tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"]),
    "mirrored_with_device_operations": lambda: tf.distribute.MirroredStrategy(
        cross_device_ops=tf.distribute.HierarchicalCopyAllReduce()
    ),
    "one_device": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
    "one_device_named": lambda: tf.distribute.OneDeviceStrategy(device="/gpu:0"),
    "own_tf_config": with_own_tf_config,
}
TRAINED = ("multi_worker", "experimental_positional", "mirrored_cpus", "one_device", "own_tf_config")

for name, make in SPELLINGS.items():
    strategy = make()
    assert isinstance(strategy, tf.distribute.Strategy), name
    values = {
        "num_replicas": strategy.num_replicas_in_sync,
        "replica_id": strategy.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group),
    }
    save(DIRECTORY, name, RANK, values | (train(strategy.scope()) if name in TRAINED else {}))

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
own = json.loads(os.environ["TF_CONFIG"])
assert resolver.cluster_spec().as_dict() == own["cluster"]
assert (resolver.task_type, resolver.task_id) == (own["task"]["type"], own["task"]["index"]) == ("worker", RANK)

# What was made before any strategy serves the one that is made now.
assert made_early.numpy().tolist() == [2.0, 3.0]
with strategy.scope():
    model = model_and_compile()
model.fit(data_made_early, epochs=1, verbose=0)
save(DIRECTORY, "data_made_early", RANK, {"weights": flat(model)})

keras.utils.set_random_seed(100 + RANK)
with strategy.scope():
    model = model_and_compile()
save(DIRECTORY, "initial_weights", RANK, {"weights": flat(model)})

# An optimizer step of one rank alone would part the copies of the model.
told = []


def lonely_step() -> None:
    variables = model.trainable_variables
    model.optimizer.apply([tf.zeros_like(variable) for variable in variables], variables)


for step in (lonely_step, tf.function(lonely_step)):
    try:
        step()
    except RuntimeError as refused:
        told.append(str(refused))
save(DIRECTORY, "lonely_step", RANK, {"told": told})

# A model made outside the scope of the strategy that the script names is that rank's own affair.
outside = model_and_compile()
outside.fit(*one_batch(), verbose=0)
assert not outside.distribute_strategy.num_replicas_in_sync > 1
