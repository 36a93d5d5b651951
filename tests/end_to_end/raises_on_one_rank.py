"""Rank 1 raises in the middle of `fit`: ``callback``, ``pipeline``, ``map``; ``unfiltered``: with full tracebacks."""

import os
import sys
import traceback

import keras
import numpy as np
import tensorflow as tf

raises = os.environ["PACELINE_RANK"] == "1"
rows, targets = np.zeros((8, 4), "float32"), np.zeros((8, 1), "float32")


class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if raises and batch == 1 and sys.argv[1] == "callback":
            raise RuntimeError("it fails in the callback")


def generate():
    for number in range(8):
        if raises and number == 3 and sys.argv[1] == "pipeline":
            raise ValueError("it fails in the pipeline")
        yield rows, targets


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
signature = (tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1)))
data = tf.data.Dataset.from_generator(generate, output_signature=signature)


def checked(number: tf.Tensor, element: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    tf.debugging.assert_less(number, tf.constant(3 if raises else 8, number.dtype), message="it fails in the map")
    return element


if sys.argv[1] == "map":
    data = data.enumerate().map(checked)
if "unfiltered" in sys.argv:
    keras.config.disable_traceback_filtering()
try:
    model.fit(data, epochs=2, verbose=0, callbacks=[Fails()])
except RuntimeError as error:
    for frame in traceback.extract_tb(error.__traceback__):
        print("seen by the script:", frame.filename)
    raise
