"""Models and steps with the batch size as a constant: ``paceline run -n 2 constant_rows.py``; the last one ends it."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

BATCH = 32


class Noise(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal((BATCH, 8))


class Judge(keras.Model):
    """The labels of a GAN's step, as many write them."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = keras.layers.Dense(1)
        self.judge.build((None, 8))

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.losses.binary_crossentropy(tf.ones((BATCH, 1)), self.judge(data[0])))
        self.optimizer.apply(tape.gradient(loss, self.judge.trainable_variables), self.judge.trainable_variables)
        return {"objective": loss}

    number = "objective"


def noisy() -> keras.Model:
    return keras.Sequential([keras.Input((8,)), Noise(), keras.layers.Dense(1)])


def unrelated() -> keras.Model:
    """An error of shapes that has nothing to do with rows."""
    return keras.Sequential([keras.Input((8,)), keras.layers.Lambda(lambda x: x @ tf.ones((9, 2)))])


x, y = np.ones((64, 8), "float32"), np.ones((64, 1), "float32")
for make in (noisy, Judge, unrelated):
    for is_fixed in (True, False):
        for is_eager in (False, True):
            try:
                keras.utils.set_random_seed(1)
                model = make()
                model.compile("sgd", "mse", run_eagerly=is_eager)
                data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=is_fixed)
                [loss] = model.fit(data, verbose=0).history[getattr(model, "number", "loss")]
                print(f"{make.__name__} fixed={is_fixed} eager={is_eager}: loss {loss:.5f}")
            except (ValueError, tf.errors.InvalidArgumentError) as fault:
                text = " ".join(str(fault).split())
                print(f"{make.__name__} fixed={is_fixed} eager={is_eager}: {type(fault).__name__}: {text}")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(BATCH)):
    strategy.run(lambda rows: rows + tf.ones((BATCH, 8)), args=(batch,))
