"""TensorFlow's tutorial "Multi-worker training with Keras", file mnist_setup.py, with digits from this repository."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

_DIGITS = Path(__file__).parents[3] / "examples" / "data" / "mnist_10k.npz"


def mnist_dataset(batch_size):
    with np.load(_DIGITS) as archive:  # the tutorial: tf.keras.datasets.mnist.load_data()
        x_train, y_train = archive["x_train"], archive["y_train"]
    # The `x` arrays are in uint8 and have values in the [0, 255] range.
    # You need to convert them to float32 with values in the [0, 1] range.
    x_train = x_train / np.float32(255)
    y_train = y_train.astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(60000).repeat().batch(batch_size)


def build_and_compile_cnn_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer(input_shape=(28, 28)),
            tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.001),
        metrics=["accuracy"],
    )
    return model


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
