"""The loop of custom_loop_plain.py with snapshots: it goes on after a failure, and after a stop.

python custom_loop_resumed.py alone alone.txt
paceline run --workers 2 --max-restarts 1 --snapshot-dir loop custom_loop_resumed.py loop loop.txt

Arguments: the folder of the snapshots, and a file for the numbers at the end.
"""

import hashlib
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
NUM_TRAIN = 4096
STEPS_PER_EPOCH = NUM_TRAIN // GLOBAL_BATCH_SIZE


def mnist_dataset() -> tf.data.Dataset:
    with np.load(DATA) as digits:
        x_train = digits["x_train"][:NUM_TRAIN] / np.float32(255)
        y_train = digits["y_train"][:NUM_TRAIN].astype("int64")
    dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(NUM_TRAIN, seed=1)
    return dataset.batch(GLOBAL_BATCH_SIZE).repeat()


def build_model() -> keras.Model:
    return keras.Sequential([keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10)])


def main(folder: str, result: str, epochs: int = 3) -> None:
    keras.utils.set_random_seed(1)
    model = build_model()
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    mean_loss = keras.metrics.Mean()

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = losses(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        mean_loss.update_state(loss)

    batches = iter(mnist_dataset())
    state = paceline.TrainingState(folder, model=model, optimizer=optimizer, loss=mean_loss, data=batches)
    for step in range(state.restore() + 1, epochs * STEPS_PER_EPOCH + 1):
        train_step(*next(batches))
        if step % STEPS_PER_EPOCH == 0:
            if paceline.is_chief():
                print(f"epoch {step // STEPS_PER_EPOCH}: loss {mean_loss.result():.7f}", flush=True)
            mean_loss.reset_state()
        if step % 20 == 0:
            state.save(step)
    state.close()
    if paceline.is_chief():
        weights = b"".join(weight.tobytes() for weight in model.get_weights())
        Path(result).write_text(f"weights  sha256 {hashlib.sha256(weights).hexdigest()[:16]}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
