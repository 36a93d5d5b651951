"""One rank of the old stack: tf_keras (Keras 2) under TensorFlow's own MultiWorkerMirroredStrategy with RING."""

import json
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

BATCH = 64
WARM_UP_STEPS, STEPS = 30, 200


class StepClock(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.times.append(time.perf_counter())


options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.RING
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
rank = strategy.cluster_resolver.task_id
generator = np.random.default_rng(0)
x, y = generator.random((6400, 28, 28), dtype=np.float32), generator.integers(0, 10, 6400)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(6400, seed=1).repeat()
data = data.batch(BATCH * strategy.num_replicas_in_sync).prefetch(2)
settings = tf.data.Options()
settings.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
settings.threading.private_threadpool_size = 1
data = data.with_options(settings)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.InputLayer((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(0.001),
        metrics=["accuracy"],
    )
clock = StepClock()
model.fit(data, epochs=1, steps_per_epoch=WARM_UP_STEPS, verbose=0)
model.fit(data, epochs=1, steps_per_epoch=STEPS, verbose=0, callbacks=[clock])
if rank == 0:
    result = {"step_ms": float(np.median(np.diff(clock.times)[5:]) * 1e3)}
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
