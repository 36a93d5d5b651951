"""Training loops as users write them for one worker, without a word of several: one function a case."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

FEATURES = np.random.default_rng(1).normal(size=(31, 8))
LABELS = np.random.default_rng(2).integers(0, 4, 31)
TARGETS = np.random.default_rng(3).normal(size=(31, 4))

Told = list[float]


def run_case(name: str) -> Told:
    """Losses, metrics and weights of a loop."""
    keras.utils.set_random_seed(5)
    keras.config.set_floatx("float64")
    return [float(number) for number in CASES[name]()]


def _batches(*arrays: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(arrays).shuffle(40, seed=3).batch(7)


def _classifier(*middle: Any) -> Any:
    layers = keras.layers
    return keras.Sequential([keras.Input((8,)), layers.Dense(6, "tanh"), *middle, layers.Dense(4)])


def _weights(*models: Any) -> Told:
    return [x for model in models for weight in model.get_weights() for x in np.asarray(weight, float).reshape(-1)]


def _guide() -> Told:
    """Keras's guide "Writing a training loop from scratch", with its metrics and its validation."""
    layers = keras.layers
    model = _classifier(layers.Dropout(0.3), layers.BatchNormalization(), layers.Dropout(0.2, seed=4))
    optimizer = keras.optimizers.Adam(0.01)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    train_acc, val_acc = (keras.metrics.SparseCategoricalAccuracy() for _ in range(2))

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss_value = loss_fn(y, logits)
            loss_value += sum(model.losses)
        grads = tape.gradient(loss_value, model.trainable_weights)
        optimizer.apply_gradients(zip(grads, model.trainable_weights, strict=True))
        train_acc.update_state(y, logits)
        return loss_value

    @tf.function
    def test_step(x: Any, y: Any) -> None:
        val_acc.update_state(y, model(x, training=False))

    told = []
    for _ in range(2):
        told += [train_step(x, y) for x, y in _batches(FEATURES, LABELS)]
        told.append(train_acc.result())
        train_acc.reset_state()
        for x, y in _batches(FEATURES[:9], LABELS[:9]):
            test_step(x, y)
        told.append(val_acc.result())
        val_acc.reset_state()
    return [*told, *_weights(model)]


def _gan() -> Told:
    """Two optimizers in one function, which draws noise for a batch whose size the script knows."""
    generator = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8)])
    discriminator = keras.Sequential([keras.Input((8,)), keras.layers.Dense(5, "leaky_relu"), keras.layers.Dense(1)])
    optimizers = keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.02)
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def train_step(images: Any) -> Any:
        noise = tf.random.normal([7, 3], dtype=tf.float64)
        with tf.GradientTape() as of_generator, tf.GradientTape() as of_discriminator:
            real, fake = (discriminator(x, training=True) for x in (images, generator(noise, training=True)))
            for_generator = entropy(tf.ones_like(fake), fake)
            for_discriminator = entropy(tf.ones_like(real), real) + entropy(tf.zeros_like(fake), fake)
        for tape, loss, model, optimizer in (
            (of_generator, for_generator, generator, optimizers[0]),
            (of_discriminator, for_discriminator, discriminator, optimizers[1]),
        ):
            grads = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return for_generator, for_discriminator

    losses = [loss for _ in range(2) for (images,) in _batches(FEATURES) for loss in train_step(images)]
    return [*losses, *_weights(generator, discriminator)]


def _accumulated() -> Told:
    """Gradients added up by hand, in variables, and applied every second step by another function."""
    model, optimizer = _classifier(), keras.optimizers.SGD(0.1, momentum=0.9)
    sums = [tf.Variable(tf.zeros_like(weight)) for weight in model.trainable_weights]

    @tf.function
    def add(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        for total, gradient in zip(sums, tape.gradient(loss, model.trainable_weights), strict=True):
            total.assign_add(gradient / 2)
        return loss

    @tf.function
    def apply() -> None:
        optimizer.apply_gradients(zip(sums, model.trainable_weights, strict=True))
        for total in sums:
            total.assign(tf.zeros_like(total))

    losses = []
    for number, (x, y) in enumerate(_batches(FEATURES, TARGETS)):
        losses.append(add(x, y))
        if number % 2:
            apply()
    return [*losses, *_weights(model)]


def _policy() -> Told:
    """PPO's update: minibatches out of arrays, a clipped ratio, advantages that are normalized over the minibatch."""
    actor, critic = _classifier(), keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01, global_clipnorm=0.5)
    variables = actor.trainable_variables + critic.trainable_variables
    optimizer.build(variables)
    rng = np.random.default_rng(7)
    advantages, returns, old = rng.normal(size=31), rng.normal(size=31), -np.abs(rng.normal(size=31))

    @tf.function
    def update(states: Any, actions: Any, advantages: Any, returns: Any, old: Any, clip: float = 0.2) -> Any:
        with tf.GradientTape() as tape:
            logs = tf.gather(tf.nn.log_softmax(actor(states)), actions, batch_dims=1)
            better = (advantages - tf.reduce_mean(advantages)) / (tf.math.reduce_std(advantages) + 1e-8)
            ratio = tf.exp(logs - old)
            gain = tf.minimum(ratio * better, tf.clip_by_value(ratio, 1 - clip, 1 + clip) * better)
            loss = tf.reduce_mean(tf.square(returns - critic(states)[:, 0])) - tf.reduce_mean(gain)
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss, tf.reduce_mean(old - logs)

    told = []
    for _ in range(2):
        order = np.random.permutation(31)
        for begin in range(0, 31, 10):
            rows = order[begin : begin + 10]
            arrays = (FEATURES[rows], LABELS[rows], advantages[rows], returns[rows], old[rows])
            told += update(*map(tf.convert_to_tensor, arrays))
    return [*told, *_weights(actor, critic)]


def _replayed() -> Told:
    """DQN: an eager policy, an update of replayed transitions, a target network that follows."""
    model, target = _classifier(), _classifier()
    target.set_weights(model.get_weights())
    optimizer, memory = keras.optimizers.Adam(0.01), []
    loss_fn = keras.losses.Huber()

    @tf.function
    def values(states: Any) -> Any:
        return model(states)

    @tf.function
    def update(states: Any, actions: Any, rewards: Any, following: Any) -> Any:
        wanted = rewards + 0.9 * tf.reduce_max(target(following), axis=1)
        with tf.GradientTape() as tape:
            chosen = tf.reduce_sum(model(states) * tf.one_hot(actions, 4, dtype=tf.float64), axis=1)
            loss = loss_fn(wanted, chosen)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    told, state = [], np.ones(8)
    for number in range(24):
        is_random = np.random.rand() < 0.3
        action = np.random.randint(4) if is_random else int(np.argmax(values(state[None])[0]))
        following = np.cos(state + action + np.arange(8.0))
        memory.append((state, action, following.sum(), following))
        state = following
        if number >= 8 and number % 4 == 0:
            rows = [memory[at] for at in np.random.choice(len(memory), 6)]
            told.append(update(*(tf.constant(np.stack(column)) for column in zip(*rows, strict=True))))
            target.set_weights([0.9 * w + 0.1 * n for w, n in zip(target.weights, model.weights, strict=True)])
    return [*told, *_weights(model, target)]


class _Trainer(tf.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.optimizer, self.count = model, keras.optimizers.RMSprop(0.01), tf.Variable(0)

    @tf.function
    def step(self, batch: dict[str, Any], *, training: bool) -> dict[str, Any]:
        self.count.assign_add(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(batch["x"], training=training) - batch["y"]))
        self.optimizer.apply(tape.gradient(loss, self.model.trainable_variables), self.model.trainable_variables)
        return {"loss": loss, "count": self.count.read_value(), "none": None}


def _method() -> Told:
    """A step that is a method, is given a dictionary, and returns one."""
    trainer = _Trainer(_classifier(keras.layers.Dropout(0.2)))
    told = [trainer.step({"x": x, "y": y}, training=True) for x, y in _batches(FEATURES, TARGETS)]
    assert told[-1]["none"] is None
    return [*(one["loss"] for one in told), told[-1]["count"], *_weights(trainer.model)]


class _Autoencoder(keras.Model):
    """Keras's VAE, with a train_step of its own that the script calls."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = keras.layers.Dense(4), keras.layers.Dense(8)
        self.own_optimizer = keras.optimizers.Adam(0.01)
        self.mean_loss = keras.metrics.Mean()

    @tf.function
    def learn(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            mean, log_variance = tf.split(self.encoder(x), 2, axis=1)
            code = tf.random.normal(tf.shape(mean), dtype=x.dtype) * tf.exp(log_variance * 0.5) + mean
            likeness = -tf.reduce_sum(tf.square(self.decoder(code) - x), axis=1)
            divergence = -0.5 * tf.reduce_sum(1 + log_variance - mean**2 - tf.exp(log_variance), axis=1)
            loss = tf.reduce_mean(divergence - likeness)
        weights = self.encoder.trainable_variables + self.decoder.trainable_variables
        self.own_optimizer.apply(tape.gradient(loss, weights), weights)
        self.mean_loss.update_state(loss)
        return loss


def _sampled() -> Told:
    model = _Autoencoder()
    losses = [model.learn(x) for _ in range(2) for (x,) in _batches(FEATURES)]
    return [*losses, model.mean_loss.result(), *_weights(model.encoder, model.decoder)]


def _gradients_apart() -> Told:
    """Gradients of a function, an update that is eager."""
    model, optimizer = _classifier(), keras.optimizers.Adam(0.01)

    @tf.function
    def gradients(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        return loss, tape.gradient(loss, model.trainable_variables)

    losses = []
    for x, y in _batches(FEATURES, TARGETS):
        loss, found = gradients(x, y)
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))
        losses.append(loss)
    return [*losses, *_weights(model)]


def _eager() -> Told:
    """No function at all."""
    model, optimizer = _classifier(keras.layers.Dropout(0.2)), keras.optimizers.Adam(0.01)
    losses = []
    for x, y in _batches(FEATURES, TARGETS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        losses.append(loss)
    return [*losses, *_weights(model)]


def _data_inside() -> Told:
    """An epoch is one function, which reads a dataset that it captures."""
    model, optimizer, data = _classifier(), keras.optimizers.Adam(0.01), _batches(FEATURES, TARGETS)

    @tf.function
    def epoch() -> Any:
        total = tf.constant(0.0, tf.float64)
        for x, y in data:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            total += loss
        return total

    optimizer.build(model.trainable_variables)
    return [epoch(), epoch(), *_weights(model)]


def _iterator() -> Told:
    """The step takes its batch out of an iterator, which it is given."""
    model, optimizer = _classifier(), keras.optimizers.Adam(0.01)

    @tf.function
    def step(iterator: Any) -> Any:
        x, y = next(iterator)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    batches = iter(_batches(FEATURES, TARGETS))
    return [*(step(batches) for _ in range(4)), *_weights(model)]


def _own_updates() -> Told:
    """No optimizer and no Keras: a variable that is given to the step, text, a loop, an assignment."""
    weights = tf.Variable(np.random.default_rng(4).normal(size=(8, 4)))

    @tf.function(input_signature=None, reduce_retracing=True)
    def step(weights: Any, x: Any, y: Any, names: Any, rate: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = x @ weights
            for power in tf.range(2):
                scores += tf.cast(power, tf.float64) * scores**2
            loss = tf.reduce_mean(tf.square(scores - y) * tf.cast(tf.strings.length(names), tf.float64)[:, None])
        weights.assign_sub(rate * tape.gradient(loss, weights))
        return loss

    names = np.array([b"x" * (1 + at % 3) for at in range(31)])
    data = _batches(FEATURES, TARGETS, names)
    losses = [step(weights, *batch, tf.constant(0.001, tf.float64)) for _ in range(2) for batch in data]
    return [*losses, *weights.numpy().reshape(-1)]


def _played() -> Told:
    """An actor and critic: the function plays an episode in Python, with a draw for each move, and learns of it."""
    model, critic = _classifier(), keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    variables = model.trainable_variables + critic.trainable_variables
    optimizer = keras.optimizers.Adam(0.01)

    def move(state: Any, action: Any) -> Any:
        return np.tanh(state * 1.1 + (action - 1.5) * np.cos(np.arange(8))), np.float64(state.sum())

    @tf.function
    def train_step(state: Any, num_moves: Any) -> Any:
        logs, values, rewards = (tf.TensorArray(tf.float64, 0, dynamic_size=True) for _ in range(3))
        with tf.GradientTape() as tape:
            for turn in tf.range(num_moves):
                logits = model(state[None])
                action = tf.random.categorical(logits, 1)[0, 0]
                logs = logs.write(turn, tf.nn.log_softmax(logits)[0, action])
                values = values.write(turn, critic(state[None])[0, 0])
                state, reward = tf.numpy_function(move, [state, tf.cast(action, tf.float64)], [tf.float64, tf.float64])
                state.set_shape([8])
                reward.set_shape([])
                rewards = rewards.write(turn, reward)
                if reward > 5.0:
                    break
            gain = rewards.stack() - values.stack()
            loss = -tf.reduce_sum(logs.stack() * gain) + tf.reduce_sum(gain**2)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    optimizer.build(variables)
    return [*(train_step(row, tf.constant(12)) for row in FEATURES[:4]), *_weights(model, critic)]


CASES: dict[str, Callable[[], Told]] = {
    "guide": _guide,
    "gan": _gan,
    "accumulated": _accumulated,
    "policy": _policy,
    "replayed": _replayed,
    "method": _method,
    "sampled": _sampled,
    "gradients_apart": _gradients_apart,
    "own_updates": _own_updates,
    "played": _played,
    "eager": _eager,
    "data_inside": _data_inside,
    "iterator": _iterator,
}
WHOLE = ("eager", "data_inside", "iterator")
"""Those that every rank computes as a whole."""
