"""A training loop written by hand, on several workers: strategy.run, strategy.reduce. Its twin is custom_loop_plain.py.

    paceline run --workers 2 examples/custom_loop.py

The rule of custom loops is TensorFlow's: divide the sum of the losses by the *global* batch; gradients are then summed.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import paceline

DATA = Path(__file__).parent / "data" / "mnist_10k.npz"
GLOBAL_BATCH_SIZE = 128


def mnist_dataset(num_train: int) -> tf.data.Dataset:
    with np.load(DATA) as digits:
        x_train, y_train = (
            digits["x_train"][:num_train] / np.float32(255),
            digits["y_train"][:num_train].astype("int64"),
        )
    return tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(num_train, seed=1).batch(GLOBAL_BATCH_SIZE)


def build_model() -> keras.Model:
    return keras.Sequential([keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10)])


def main(epochs: int = 3, num_train: int = 8000) -> None:
    keras.utils.set_random_seed(1)
    strategy = paceline.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build_model()
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function
    def train_step(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(losses(y, model(x, training=True))) / GLOBAL_BATCH_SIZE
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step, args=batch), axis=None)

    dataset = strategy.experimental_distribute_dataset(mnist_dataset(num_train))
    for epoch in range(epochs):
        total, num_steps = 0.0, 0
        for batch in dataset:
            total += float(train_step(batch))
            num_steps += 1
        if paceline.is_chief():
            print(f"epoch {epoch + 1}: loss {total / num_steps:.5f}", flush=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
