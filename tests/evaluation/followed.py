"""Trains a model with two outputs until the file "enough" is there; what an evaluator writes of it is looked at.

Both ranks and the evaluator run this script. An epoch ends when the evaluator has the one before.
"""

import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

FOLDER = Path(sys.argv[1])
EVALUATIONS = FOLDER / "snapshots" / "evaluator" / "evaluations.jsonl"
STEPS_OF_EPOCH = 3
LIMIT_SECONDS = 300.0
PLACE, GENERATION = os.environ["PACELINE_TASK"].replace(" ", "_"), os.environ["PACELINE_GENERATION"]
(FOLDER / f"{PLACE}.{GENERATION}.pids").open("a").write(f"{os.getpid()}\n")


class Length(keras.metrics.Metric):
    """A metric of the user's, with a state of its own: the quadratic mean of the predictions."""

    def __init__(self) -> None:
        super().__init__(name="length")
        self.squares = self.add_weight(initializer="zeros", name="squares")
        self.rows = self.add_weight(initializer="zeros", name="rows")

    def update_state(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: object = None) -> None:
        self.squares.assign_add(tf.reduce_sum(y_pred**2))
        self.rows.assign_add(tf.cast(tf.shape(y_pred)[0], "float32"))

    def result(self) -> tf.Tensor:
        return tf.sqrt(self.squares / self.rows)


class Stops(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        if PLACE == "worker_0":  # what the workers themselves get, by steps
            with (FOLDER / "validations.jsonl").open("a") as file:
                file.write(json.dumps({"step": int(self.model.optimizer.iterations), "logs": logs}) + "\n")
        if self._is_enough(int(self.model.optimizer.iterations) - STEPS_OF_EPOCH):
            self.model.stop_training = True

    def _is_enough(self, step: int) -> bool:
        """Waits until the evaluator has written of `step` or a later one, unless the training may end."""
        give_up_at = time.monotonic() + LIMIT_SECONDS
        while not (FOLDER / "enough").exists():
            if step <= 0 or evaluated_step() >= step:
                return False
            assert time.monotonic() < give_up_at, f"nobody evaluates step {step}"
            time.sleep(0.02)
        return True


def evaluated_step() -> int:
    """Of the last whole line, or 0."""
    lines = EVALUATIONS.read_text().splitlines(keepends=True) if EVALUATIONS.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    return int(json.loads(whole[-1])["step"]) if whole else 0


generator = np.random.default_rng(3)
features = {"left": generator.normal(size=(48, 4)), "right": generator.normal(size=(48, 3))}
labels = {"sign": (features["left"].sum(axis=1) > 0).astype("int32"), "sum": features["right"].sum(axis=1)}
inputs = {name: keras.Input(value.shape[1:], name=name) for name, value in features.items()}
hidden = keras.layers.Dense(8, "relu")(keras.layers.Concatenate()([*inputs.values()]))
hidden = keras.layers.Dropout(0.2)(keras.layers.BatchNormalization()(hidden))
outputs = {"sign": keras.layers.Dense(2, name="sign")(hidden), "sum": keras.layers.Dense(1, name="sum")(hidden)}
model = keras.Model(inputs, outputs)
model.compile(
    keras.optimizers.Adam(0.01),
    {"sign": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "sum": "mse"},
    metrics={"sign": ["accuracy"], "sum": ["mae", Length()]},
)
held_out = tf.data.Dataset.from_tensor_slices((features, labels)).take(20).batch(7)
model.fit(features, labels, batch_size=16, epochs=100_000, validation_data=held_out, verbose=0, callbacks=[Stops()])
print("after fit", flush=True)
(FOLDER / f"{PLACE}.came_out_of_fit").touch()
