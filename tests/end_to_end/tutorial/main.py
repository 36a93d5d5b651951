# ruff: noqa: PTH118
"""TensorFlow's tutorial "Multi-worker training with Keras", file main.py, and what the test wants to know of it."""

import json
import os
import sys

import mnist_setup
import numpy as np
import tensorflow as tf

per_worker_batch_size = 64
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])

strategy = tf.distribute.MultiWorkerMirroredStrategy()

global_batch_size = per_worker_batch_size * num_workers
multi_worker_dataset = mnist_setup.mnist_dataset(global_batch_size)

with strategy.scope():
    # Model building/compiling need to be within `strategy.scope()`.
    multi_worker_model = mnist_setup.build_and_compile_cnn_model()

history = multi_worker_model.fit(multi_worker_dataset, epochs=int(sys.argv[2]), steps_per_epoch=70).history

np.savez(
    os.path.join(sys.argv[1], f"tutorial.rank{tf_config['task']['index']}.npz"),
    *multi_worker_model.get_weights(),
    num_replicas=strategy.num_replicas_in_sync,
    **{f"history_{name}": values for name, values in history.items()},
)
