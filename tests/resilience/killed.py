"""One training job for `test_killed.py`: it can be killed, told to stop, and run on another number of workers."""

import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.fit.snapshots import resumable_fit

RANK = int(os.environ.get("PACELINE_RANK", "0"))
BLOW = os.environ.get("BLOW", "")  # "SIGNAL RANK STEP", and "launcher" if it is struck in the rank's place; or nothing
WAITS_FOR_SNAPSHOTS = 4
"""So many steps before a blow all ranks wait for what has begun: with nothing on disk a blow would test nothing."""
if len(sys.argv) > 1:
    keras.config.set_floatx(sys.argv[1])


class Struck(keras.callbacks.Callback):
    same_on_all_ranks = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        number, rank, step, target = (*BLOW.split(), "", "", "", "")[:4]
        steps_left = int(step or -1) - int(self.model.optimizer.iterations)
        if 0 <= steps_left <= WAITS_FOR_SNAPSHOTS:
            for manager in resumable_fit._process.managers.values():
                assert manager.finish(60)
        if rank == str(RANK) and steps_left == 0:
            os.kill(os.getppid() if target == "launcher" else os.getpid(), signal.Signals[number])


features = np.random.default_rng(0).normal(size=(120, 8)).astype(keras.config.floatx())
labels = (features.sum(axis=1) > 0).astype("int32")
data = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(64).batch(12).prefetch(2)
if sys.argv[2:] in (["records"], ["compressed"]):
    import paceline.data

    compression = "GZIP" if sys.argv[2:] == ["compressed"] else ""
    own = Path(f"rank{RANK}")
    own.mkdir(exist_ok=True)
    files = [own / f"{number}.tfrecord" for number in range(3)]
    for number, path in enumerate(files):
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for row in range(number * 40, number * 40 + 40):
                writer.write(features[row].tobytes() + labels[row].tobytes())

    def parse(record: Any) -> Any:
        x = tf.io.decode_raw(tf.strings.substr(record, 0, 8 * features.itemsize), features.dtype)
        y = tf.io.decode_raw(tf.strings.substr(record, 8 * features.itemsize, 4), tf.int32)
        return tf.ensure_shape(x, [8]), tf.ensure_shape(y, [1])[0]

    def augment(record: Any, seed: Any) -> Any:
        x, y = parse(record)
        return x + tf.random.stateless_normal([8], seed, stddev=0.1, dtype=features.dtype), y

    data = paceline.data.records(files, parse if compression else augment, 12, shuffle=True)


class Items(keras.utils.PyDataset):
    """Its order is shuffled by numbers of its own and by NumPy's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.order, self.own = np.arange(len(features)), np.random.default_rng(2)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        rows = self.order[12 * index : 12 * index + 12]
        return features[rows], labels[rows]

    def on_epoch_end(self) -> None:
        self.own.shuffle(self.order)
        np.random.shuffle(self.order[:50])


if sys.argv[2:3] == ["items"]:
    data = Items(workers=int(sys.argv[3]))
layers = keras.layers
model = keras.Sequential([keras.Input((8,)), layers.Dense(16, "relu"), layers.Dropout(0.3), layers.Dense(2)])
model.compile(
    keras.optimizers.Adam(0.01, clipnorm=1.0),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(
    data, epochs=3, verbose=0, callbacks=[Struck()], validation_data=(features[:30], labels[:30])
).history
weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
history = {name: list(map(float, values)) for name, values in history.items()}
print(f"END {hashlib.sha256(weights.tobytes()).hexdigest()[:16]} {history}", flush=True)
if RANK == 0:
    np.save("weights.npy", weights)
