"""A process of a job on the digits; TF_CONFIG says which. The chief tells when steps begin, and then what came out.

python digits_job.py data_parallel|parameter_servers STEPS EVERY [MAX_STALENESS] [--computing]

With --computing, the model has few variables and much to compute.

The weights after every EVERY steps are kept, and evaluated when the training is over: evaluating takes no time of it.
"""

import json
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import paceline

IS_COMPUTING = sys.argv[-1] == "--computing"
if IS_COMPUTING:
    sys.argv.pop()
KIND, STEPS, EVERY = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
MAX_STALENESS = None if len(sys.argv) < 5 or sys.argv[4] == "none" else int(sys.argv[4])
ROWS_OF_A_WORKER = 32
ENOUGH = 0.95
SEED = 1

keras.utils.set_random_seed(SEED)
if KIND == "data_parallel":
    strategy = paceline.MultiWorkerMirroredStrategy()
    batch = ROWS_OF_A_WORKER * strategy.num_replicas_in_sync
    is_chief = strategy.cluster_resolver.task_id == 0
else:
    strategy = paceline.ParameterServerStrategy(max_staleness=MAX_STALENESS)
    batch, is_chief = ROWS_OF_A_WORKER, True


def layers() -> keras.Model:
    if IS_COMPUTING:
        return keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


class Course(keras.callbacks.Callback):
    """Weights in the course of a training, and when they were reached."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float, list[np.ndarray]]] = []
        self.began = self.paused = 0.0
        self.num_steps = 0

    def on_train_batch_end(self, batch, logs=None) -> None:
        now = time.perf_counter()
        if not self.began:  # what comes before is tracing
            self.began = now
            print("begin", flush=True)
        self.num_steps += 1
        if self.num_steps % EVERY == 0:
            self.points.append((self.num_steps, now - self.began - self.paused, self.model.get_weights()))
            self.paused += time.perf_counter() - now


with np.load(Path(__file__).parents[2] / "examples" / "data" / "mnist_10k.npz") as arrays:
    x, x_test = (arrays[name].astype(np.float32)[..., None] / 255 for name in ("x_train", "x_test"))
    y, y_test = (arrays[name].astype(np.int32) for name in ("y_train", "y_test"))
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=SEED).repeat().batch(batch)
with strategy.scope():
    model = layers()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
course = Course()
logs = model.fit(data, steps_per_epoch=STEPS, epochs=1, verbose=0, callbacks=[course]).history
if is_chief:
    copy = layers()
    accuracies: list[float] = []
    for _, _, weights in course.points:
        if IS_COMPUTING and accuracies and accuracies[-1] >= ENOUGH:
            break  # nobody asks for the others
        copy.set_weights(weights)
        accuracies.append(float((copy(x_test).numpy().argmax(1) == y_test).mean()))
    told = {
        "rows": [num_steps * batch for num_steps, *_ in course.points],
        "seconds": [seconds for _, seconds, _ in course.points],
        "accuracy": accuracies,
        "staleness": [float(logs[name][-1]) for name in ("staleness", "max_staleness") if name in logs],
    }
    print(json.dumps(told), flush=True)
