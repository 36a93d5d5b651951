"""A process of Paceline's cluster by hand: chief, worker or parameter server, as TF_CONFIG says."""

import functools

import digits
import keras

import paceline

L = keras.layers


class Measured(keras.callbacks.Callback):
    """Tells when what is measured begins and ends."""

    def on_epoch_begin(self, epoch, logs=None) -> None:
        if epoch == 1:
            digits.say("begin")

    def on_train_end(self, logs=None) -> None:
        digits.say("end")


def model_of(steps_per_execution: int) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            L.Reshape((28, 28, 1)),
            L.Conv2D(32, 3, activation="relu"),
            L.Flatten(),
            L.Dense(128, activation="relu"),
            L.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.01)
    model.compile(optimizer, loss, metrics=["accuracy"], steps_per_execution=steps_per_execution)
    return model


def turn(model: keras.Model, data: object, num_steps: int) -> None:
    model.fit(data, epochs=digits.EPOCHS, steps_per_epoch=num_steps, verbose=0, callbacks=[Measured()])


strategy = paceline.ParameterServerStrategy()
with strategy.scope():
    models = {k: model_of(k) for k in digits.STEPS_PER_EPOCH}
own = {k: functools.partial(turn, models[k], digits.dataset(), n) for k, n in digits.STEPS_PER_EPOCH.items()}
digits.take_turns({f"fit {k}": variant for k, variant in own.items()})
