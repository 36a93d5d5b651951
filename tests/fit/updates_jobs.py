"""``updates_jobs.py FOLDER``: trains in several ways; saves losses and variables, prints how many had loops."""

import os
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

WIDTH = 160
"""Weights of 160 x 160 entries are worth a loop."""

with_loops: list[int] = []

if "PACELINE_RANK" in os.environ:
    from paceline.strategy.fused_updates import FusedUpdateCalls

    build = FusedUpdateCalls.build

    def noted(self, updates, inputs):
        with_loops.append(sum(len(update.variables) for update in updates))
        return build(self, updates, inputs)

    FusedUpdateCalls.build = noted

X = np.random.default_rng(0).normal(size=(40, WIDTH)).astype("float32")
Y = np.random.default_rng(1).normal(size=(40, 1)).astype("float32")
WORDS = np.random.default_rng(2).integers(0, 200, (40, 5))


def _dense(width=WIDTH):
    return keras.Sequential(
        [keras.Input((WIDTH,)), keras.layers.Dense(width, "tanh"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
    )


def _fitted(model, x=X, **fit):
    history = model.fit(x, Y, batch_size=8, epochs=2, shuffle=True, verbose=0, **fit).history
    return history.get("square", history.get("loss")), model


def adam():
    model = _dense()
    model.compile("adam", "mse", metrics=["mae"])
    return _fitted(model, validation_data=(X, Y))


def every_option():
    optimizer = keras.optimizers.AdamW(
        keras.optimizers.schedules.ExponentialDecay(0.01, 3, 0.9),
        global_clipnorm=0.5,
        use_ema=True,
        ema_overwrite_frequency=3,
        gradient_accumulation_steps=2,
    )
    model = _dense()
    model.compile(optimizer, "mse", steps_per_execution=3)
    return _fitted(model)


def half_precision_with_a_scale():
    keras.config.set_dtype_policy("mixed_float16")
    model = _dense()
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=2.0**16), "mse")
    keras.config.set_dtype_policy("float32")
    return _fitted(model)


def rows_of_a_table():
    words = keras.Input((5,), dtype="int32")
    hidden = keras.layers.Flatten()(keras.layers.Embedding(200, WIDTH)(words))
    model = keras.Model(words, keras.layers.Dense(1)(keras.layers.Dense(WIDTH, "relu")(hidden)))
    model.compile(keras.optimizers.RMSprop(0.01, momentum=0.5), "mse")
    return _fitted(model, WORDS)


def small_weights():
    model = _dense(8)
    model.compile("adam", "mse")
    return _fitted(model)


def compiled_for_xla():
    model = _dense()
    model.compile("adam", "mse", jit_compile=True)
    return _fitted(model)


class Noisy(keras.optimizers.SGD):
    """Draws with the seeds of the step, and keeps a tensor for it."""

    def __init__(self, draws):
        super().__init__(0.01, momentum=0.9)
        self.draws = draws

    def update_step(self, gradient, variable, learning_rate):
        if self.draws:
            gradient = gradient + 0.1 * tf.random.normal(tf.shape(gradient))
        super().update_step(gradient, variable, learning_rate)

    def apply(self, grads, trainable_variables=None):
        grads = list(grads)
        super().apply(grads, trainable_variables)
        self.last = None if self.draws else grads[0] * 2.0


class Logs(keras.Sequential):
    def train_step(self, data):
        logs = super().train_step(data)
        return logs if self.optimizer.last is None else {**logs, "last": tf.reduce_sum(self.optimizer.last)}


def draws_in_its_update():
    model = _dense()
    model.compile(Noisy(draws=True), "mse")
    return _fitted(model)


def keeps_a_tensor():
    model = Logs([keras.Input((WIDTH,)), keras.layers.Dense(WIDTH, "tanh"), keras.layers.Dense(1)])
    model.compile(Noisy(draws=False), "mse")
    return _fitted(model)


class TwoOptimizers(keras.Model):
    """Not built when the first step is traced; one of them updates in a branch, the other one by `apply_gradients`."""

    def __init__(self):
        super().__init__()
        self.first, self.second = keras.layers.Dense(WIDTH, "tanh"), keras.layers.Dense(1)
        self.others = keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)

    def call(self, x):
        return self.second(self.first(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        firsts, seconds = self.first.trainable_variables, self.second.trainable_variables
        gradients = tape.gradient(loss, [*firsts, *seconds])
        self.optimizer.apply_gradients(zip(gradients[:2], firsts, strict=True))

        def update():
            self.others.apply(gradients[2:], seconds)
            return 1

        tf.cond(loss > 0.5, update, lambda: 0)
        return {"square": loss}


def two_optimizers():
    model = TwoOptimizers()
    model.compile("adam")
    return _fitted(model)


def kept_by_a_callback():
    """What a callback has read stays as it was."""
    model, kept = _dense(), []
    model.compile("lion", "mse")
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: kept.append(model.layers[0].kernel.numpy())
    )
    before = _fitted(model, callbacks=[keep])
    assert len({one.tobytes() for one in kept}) == len(kept)
    return [*before[0], *(float(np.abs(one).sum()) for one in kept)], model


def single_batches():
    model = _dense()
    model.compile("adagrad", "mse")
    return [model.train_on_batch(X[at : at + 8], Y[at : at + 8]) for at in range(0, 40, 8)], model


for job in (
    *(adam, every_option, half_precision_with_a_scale, rows_of_a_table, small_weights, compiled_for_xla),
    *(two_optimizers, kept_by_a_callback, single_batches, draws_in_its_update, keeps_a_tensor),
):
    keras.utils.set_random_seed(3)
    with_loops.clear()
    losses, trained = job()
    variables = [*trained.variables, *trained.optimizer.variables]
    kept = {f"v{at}": np.asarray(variable) for at, variable in enumerate(variables)}
    np.savez(Path(sys.argv[1]) / f"{job.__name__}.npz", losses=losses, **kept)
    print("LOOPS", job.__name__, sum(with_loops), flush=True)
