"""The tutorials' multi-worker script as they print it, with TensorFlow's strategy. Its twin is multi_worker.py.

No edit is needed under the launcher, which serves Paceline's classes under TensorFlow's names:

    paceline run --workers 2 multi_worker_plain.py

Started by hand it needs the two edited lines of multi_worker.py: TensorFlow's own strategy fails there with Keras 3.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parent / "data" / "mnist_10k.npz"
PER_WORKER_BATCH_SIZE = 64


def mnist_dataset(batch_size: int) -> tf.data.Dataset:
    with np.load(DATA) as digits:
        x_train, y_train = digits["x_train"] / np.float32(255), digits["y_train"].astype("int64")
    return tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(8000, seed=1).repeat().batch(batch_size)


def build_and_compile_cnn_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(0.05),
        metrics=["accuracy"],
    )
    return model


def main(epochs: int = 3, steps_per_epoch: int = 60) -> None:
    tf_config = json.loads(os.environ["TF_CONFIG"])
    num_workers = len(tf_config["cluster"]["worker"])

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    dataset = mnist_dataset(PER_WORKER_BATCH_SIZE * num_workers)
    with strategy.scope():
        model = build_and_compile_cnn_model()
    history = model.fit(dataset, epochs=epochs, steps_per_epoch=steps_per_epoch, shuffle=False, verbose=2).history

    task_type, task_id = strategy.cluster_resolver.task_type, strategy.cluster_resolver.task_id
    print(f"{task_type} {task_id} of {strategy.num_replicas_in_sync}: accuracy {history['accuracy'][-1]:.6f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
