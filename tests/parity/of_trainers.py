"""Keras's own surface around a step: executions of several steps, own steps, single batches, evaluate and predict."""

from typing import Any

import keras
import tensorflow as tf
from keras import optimizers

from parity.ingredients import BATCH, batches, cross_entropy, dense_model, layers, table, train
from parity.registry import job


def _several_steps(steps_per_execution: int) -> dict[str, Any]:
    data = batches(table(7 * BATCH + 5))
    return train(
        dense_model(),
        optimizers.SGD(0.1),
        data,
        validation_data=batches(table(BATCH + 3, seed=9)),
        compile_options={"steps_per_execution": steps_per_execution},
    )


@job(worlds=())
def one_step_per_execution() -> dict[str, Any]:
    return _several_steps(1)


@job(worlds=())
def two_steps_per_execution() -> dict[str, Any]:
    return _several_steps(2)


@job(worlds=())
def three_steps_per_execution() -> dict[str, Any]:
    return _several_steps(3)


@job(worlds=())
def eight_steps_per_execution() -> dict[str, Any]:
    return _several_steps(8)


@job()
def evaluate_and_predict() -> dict[str, Any]:
    x, y = table(41)
    result = train(dense_model(), optimizers.SGD(0.1), x, y, batch_size=BATCH, shuffle=False)
    model = result["model"]
    evaluated = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
    result["history"] |= {f"evaluated_{name}": [value] for name, value in evaluated.items()}
    result["history"]["predicted"] = model.predict(x, batch_size=BATCH, verbose=0)
    return result


@job(worlds=())
def single_batches() -> dict[str, Any]:
    x, y = table(3 * BATCH + 5)
    model = dense_model()
    model.compile(optimizers.Adam(0.01), cross_entropy(), metrics=["accuracy"])
    history: dict[str, Any] = {"loss": [], "accuracy": []}
    for begin in range(0, len(x), BATCH):
        rows = slice(begin, begin + BATCH)
        logs = model.train_on_batch(x[rows], y[rows], return_dict=True)
        for name, value in logs.items():
            history[name].append(value)
    history["tested"] = model.test_on_batch(x[:BATCH], y[:BATCH])
    history["predicted"] = model.predict_on_batch(x[:BATCH])
    return {"model": model, "history": history}


class OwnStep(keras.Model):
    """The train_step of Keras's guide "Customizing what happens in fit"; nothing is built before the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.logits = layers.Dense(16, "relu"), layers.Dense(4)

    def call(self, inputs: Any) -> Any:
        return self.logits(self.hidden(inputs))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics} | {"twice_the_loss": 2 * loss}


@job(worlds=())
def own_train_step_in_an_unbuilt_model() -> dict[str, Any]:
    return train(OwnStep(), optimizers.SGD(0.1), batches(table(37)))


class OwnLoss(keras.Model):
    """A step that averages by itself, like the autoencoder of Keras's guides: no Keras loss takes part."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = layers.Dense(8)
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, inputs: Any) -> Any:
        return self.decoder(inputs)

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            difference = self(data) - tf.sin(data)
            loss = keras.ops.mean(keras.ops.sum(difference**2, axis=1))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


@job(worlds=())
def own_loss_that_no_keras_loss_scales() -> dict[str, Any]:
    x, _ = table(49)
    model = OwnLoss()
    model.compile(optimizer=optimizers.SGD(0.1))
    history = model.fit(tf.data.Dataset.from_tensor_slices(x).batch(BATCH), epochs=3, verbose=0).history
    return {"model": model, "history": history}


class OneLossPerRow(OwnLoss):
    """A tape adds the rows of its target up: the step of a sum, with the functional form of a Keras loss."""

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            losses = keras.losses.mean_squared_error(tf.sin(data), self(data))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(losses, variables), variables, strict=True))
        self.tracker.update_state(losses)
        return {"loss": self.tracker.result()}


@job(worlds=())
def own_step_of_one_loss_per_row() -> dict[str, Any]:
    x, _ = table(49)
    model = OneLossPerRow()
    model.compile(optimizer=optimizers.SGD(0.02))
    history = model.fit(tf.data.Dataset.from_tensor_slices(x).batch(BATCH), epochs=3, verbose=0).history
    return {"model": model, "history": history}


@job(worlds=())
def own_step_of_one_loss_per_row_in_batches_of_a_fixed_size() -> dict[str, Any]:
    x, _ = table(3 * BATCH)
    model = OneLossPerRow()
    model.compile(optimizer=optimizers.SGD(0.02))
    return {"model": model, "history": model.fit(batches(x, drop_remainder=True), epochs=2, verbose=0).history}


class AveragedAfterTheTape(OneLossPerRow):
    """One variable's gradient stays a sum; the other's is made a mean."""

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            losses = keras.losses.mean_squared_error(tf.sin(data), self(data))
        variables = self.trainable_variables
        kernel, bias = tape.gradient(losses, variables)
        self.optimizer.apply([kernel / tf.cast(tf.shape(data)[0], kernel.dtype), 0.1 * bias], variables)
        self.tracker.update_state(losses)
        return {"loss": self.tracker.result()}


@job(worlds=())
def own_step_that_averages_its_gradients() -> dict[str, Any]:
    x, _ = table(3 * BATCH)
    model = AveragedAfterTheTape()
    model.compile(optimizer=optimizers.SGD(0.02))
    first = model.fit(batches(x), epochs=2, verbose=0).history
    again = model.fit(batches(x, drop_remainder=True), epochs=1, verbose=0).history
    return {"model": model, "history": first | {"again": again["loss"]}}


class OwnComputeLoss(OwnStep):
    """Keras's own step around a loss that no Keras loss takes part in."""

    train_step = keras.Model.train_step

    def compute_loss(self, x: Any, y: Any, y_pred: Any, *_: Any, **__: Any) -> Any:
        return keras.ops.mean((y_pred - keras.ops.cast(y, y_pred.dtype)[:, None]) ** 2)


@job(worlds=())
def own_compute_loss() -> dict[str, Any]:
    data = batches(table(37))
    return train(OwnComputeLoss(), optimizers.SGD(0.05), data, validation_data=data)


@job(worlds=())
def three_fits_of_two_models() -> dict[str, Any]:
    first, second = dense_model(), dense_model()
    data = batches(table(37))
    result = train(first, optimizers.Adam(0.01), data, epochs=1)
    other = train(second, optimizers.SGD(0.1), data, epochs=1)
    again = first.fit(data, epochs=3, initial_epoch=1, verbose=0).history
    return {
        "weights": [*first.get_weights(), *second.get_weights()],
        "history": {
            **{f"first_{key}": value for key, value in result["history"].items()},
            **{f"second_{key}": value for key, value in other["history"].items()},
            **{f"again_{key}": value for key, value in again.items()},
        },
    }


@job(worlds=())
def five_hundred_steps_fifty_at_a_time() -> dict[str, Any]:
    """Two collectives a step inside `tf.while_loop`: were they not ordered, ranks would meet in different ones."""
    x, y = table(500)
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4)])
    data = tf.data.Dataset.from_tensor_slices((x, y, abs(x[:, 0]))).repeat().batch(4)
    options = {
        "steps_per_execution": 50,
        "loss": cross_entropy(reduction="mean_with_sample_weight"),
        "weighted_metrics": ["accuracy"],
        "metrics": None,
    }
    return train(model, optimizers.SGD(0.01), data, epochs=2, steps_per_epoch=250, compile_options=options)


class Adversaries(keras.Model):
    """Two models, two optimizers and two losses in one step, after Keras's guide: a generator and its critic."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential([keras.Input((3,)), layers.Dense(8, "tanh"), layers.Dense(8)])
        self.critic = keras.Sequential(
            [keras.Input((8,)), layers.Dense(8, "relu"), layers.Dropout(0.2), layers.Dense(1)]
        )
        self.losses_of_critic = keras.metrics.Mean(name="critic")
        self.losses_of_generator = keras.metrics.Mean(name="generator")
        self.seeds = keras.random.SeedGenerator(3)

    def compile(self, critic_optimizer: Any, generator_optimizer: Any) -> None:
        super().compile()
        self.critic_optimizer, self.generator_optimizer = critic_optimizer, generator_optimizer
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    @property
    def metrics(self) -> list[Any]:
        return [self.losses_of_critic, self.losses_of_generator]

    def train_step(self, real: Any) -> dict[str, Any]:
        rows = tf.shape(real)[0]
        made = self.generator(keras.random.normal((rows, 3), seed=self.seeds))
        labels = tf.concat([tf.ones((rows, 1)), tf.zeros((rows, 1))], 0)
        with tf.GradientTape() as tape:
            said = [self.critic(rows_, training=True) for rows_ in (real, made)]
            critic_loss = (self.loss_of(labels[:rows], said[0]) + self.loss_of(labels[rows:], said[1])) / 2
        variables = self.critic.trainable_weights
        self.critic_optimizer.apply(tape.gradient(critic_loss, variables), variables)
        noise = keras.random.normal((rows, 3), seed=self.seeds)
        with tf.GradientTape() as tape:
            generator_loss = self.loss_of(labels[:rows], self.critic(self.generator(noise)))
        variables = self.generator.trainable_weights
        self.generator_optimizer.apply(tape.gradient(generator_loss, variables), variables)
        self.losses_of_critic.update_state(critic_loss)
        self.losses_of_generator.update_state(generator_loss)
        return {metric.name: metric.result() for metric in self.metrics} | {"last": critic_loss + generator_loss}


@job()
def two_optimizers_in_one_step() -> dict[str, Any]:
    x, _ = table(3 * BATCH + 5)
    model = Adversaries()
    model.compile(optimizers.Adam(0.01), optimizers.SGD(0.05))
    data = tf.data.Dataset.from_tensor_slices(x).shuffle(60).batch(BATCH)
    return {"model": model, "history": model.fit(data, epochs=3, verbose=0).history}


@job(worlds=())
def validation_split_and_frequency() -> dict[str, Any]:
    x, y = table(75)
    return train(
        dense_model(),
        optimizers.RMSprop(0.01),
        x,
        y,
        batch_size=BATCH,
        validation_split=0.3,
        validation_freq=2,
        epochs=4,
        initial_epoch=1,
    )


@job(worlds=())
def recompiled_and_run_eagerly() -> dict[str, Any]:
    model, data = dense_model(), batches(table(37))
    first = train(model, optimizers.SGD(0.1), data, epochs=1)["history"]
    second = train(model, optimizers.Adam(0.01), data, epochs=2, compile_options={"run_eagerly": True})["history"]
    return {"model": model, "history": first | {f"again_{name}": values for name, values in second.items()}}


@job(worlds=())
def compiled_for_xla() -> dict[str, Any]:
    """One worker compiles its step with XLA, which rounds differently; several cannot, and say so."""
    return train(dense_model(), optimizers.SGD(0.1), batches(table(37)), compile_options={"jit_compile": True})
