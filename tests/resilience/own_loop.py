"""A loop without `fit`: ``python own_loop.py DIRECTORY [STEP_TO_DIE_AT [SIGNAL]]``."""

import hashlib
import os
import signal
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import paceline

LAST, EVERY = 20, 4
directory, death, blow = (*sys.argv[1:], "", "", "")[:3]


def show(event: Any) -> None:
    if not isinstance(event, paceline.events.SnapshotTaken):  # comes from a thread of its own
        print(f"EVENT {type(event).__name__} {event.step}", flush=True)


paceline.events.subscribe(show)
keras.utils.set_random_seed(3)
features = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
data = iter(tf.data.Dataset.from_tensor_slices((features, features.sum(axis=1))).shuffle(32).repeat().batch(8))


class Counting(keras.layers.Layer):
    """Holds what Keras lists nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = tf.Variable(0.0)

    def call(self, inputs: Any) -> Any:
        self.calls.assign_add(1.0)
        return inputs * (1.0 + 0.01 * self.calls)


counting = Counting()
body = [keras.layers.Dense(8), counting, keras.layers.Dropout(0.2), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((4,)), *body])
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(model.trainable_variables)
mean = keras.metrics.Mean()
offset = tf.Variable(0.0)


class Drawn:
    """An object of the user's own."""

    def __init__(self) -> None:
        self.numbers: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": self.numbers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.numbers = state["numbers"]


drawn = Drawn()
state = paceline.TrainingState(
    directory, model=model, optimizer=optimizer, mean=mean, offset=offset, data=data, random=drawn
)  # a name that a snapshot's own part once had: what the script registered was lost
first = state.restore()
print(f"FIRST {first}", flush=True)
for step in range(first, LAST):
    x, y = next(data)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True)[:, 0] - y) ** 2) + offset * 0
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    mean.update_state(loss)
    offset.assign_add(1.0)
    drawn.numbers.append(float(np.random.uniform()))
    if str(step) == death:
        if blow:
            signal.raise_signal(signal.Signals[blow])
        else:
            assert state._manager.finish(20)
            os._exit(9)
    if step % EVERY == EVERY - 1:
        state.save(step + 1, {"distance": abs(step + 1 - 8)})
state.close()
digest = hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in (*model.variables, *optimizer.variables)))
print(
    f"END {digest.hexdigest()[:16]} {float(mean.result())} {float(offset)} {float(counting.calls)} {drawn.numbers}",
    flush=True,
)
