"""Small training jobs, each with something that has state: the name of the function is the name of the case."""

import itertools
import os
import random
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from lives import Death, Dies, told

import paceline

JOBS: dict[str, Callable[[], Any]] = {}

ROWS, BATCH = 100, 8
STEPS = -(-ROWS // BATCH)
MANY_FITS, STEPS_OF_MANY = 19, 5
STEPS_UNTIL_PRUNED = STEPS + 5
_DEADLINE_SECONDS = 60.0

layers = keras.layers
LOSS = keras.losses.SparseCategoricalCrossentropy


def job(function: Callable[[], Any]) -> Callable[[], Any]:
    JOBS[function.__name__] = function
    return function


def rows() -> tuple[Any, Any]:
    features = np.random.default_rng(3).normal(size=(ROWS, 6)).astype("float32")
    return features, (features.sum(axis=1) > 0).astype("int32")


def shuffled() -> Any:
    return tf.data.Dataset.from_tensor_slices(rows()).shuffle(40).batch(BATCH)


def model_of(*hidden: Any, optimizer: Any = None, **compiling: Any) -> Any:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), *hidden, layers.Dense(2, dtype="float32")])
    model.compile(
        optimizer or keras.optimizers.SGD(0.1, momentum=0.9), LOSS(from_logits=True), metrics=["accuracy"], **compiling
    )
    return model


def fit(model: Any, *data: Any, callbacks: Any = (), **options: Any) -> Any:
    return model.fit(*data, epochs=options.pop("epochs", 3), verbose=0, callbacks=[Dies(), *callbacks], **options)


def result_of(model: Any, *data: Any, **options: Any) -> Any:
    fit(model, *data, **options)
    return told(model)


# Optimizers and layers with state.


@job
def momentum() -> Any:
    return result_of(model_of(), shuffled())


@job
def adam_schedule_clipnorm() -> Any:
    rate = keras.optimizers.schedules.CosineDecay(0.02, 60)
    return result_of(model_of(optimizer=keras.optimizers.Adam(rate, clipnorm=0.5)), shuffled())


@job
def dropout_and_batch_normalization() -> Any:
    hidden = (layers.BatchNormalization(), layers.Dropout(0.3), layers.GaussianNoise(0.1))
    return result_of(model_of(*hidden, optimizer=keras.optimizers.Adam(0.01)), shuffled())


@job
def accumulation() -> Any:
    return result_of(model_of(optimizer=keras.optimizers.Adam(0.01, gradient_accumulation_steps=4)), shuffled())


@job
def layers_and_an_optimizer_with_state() -> Any:
    """What the jobs above have one by one."""
    hidden = (layers.BatchNormalization(), layers.Dropout(0.3), layers.GaussianNoise(0.1))
    rate = keras.optimizers.schedules.CosineDecay(0.02, 60)
    optimizer = keras.optimizers.Adam(rate, clipnorm=0.5, gradient_accumulation_steps=4)
    return result_of(model_of(*hidden, optimizer=optimizer), shuffled())


@job
def moving_average_swapped_in() -> Any:
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=5)
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    optimizer_2 = keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9)
    first, second = model_of(optimizer=optimizer), model_of(optimizer=optimizer_2)
    fit(first, shuffled())
    fit(second, shuffled(), callbacks=[swap], validation_data=rows())
    return told(first, second)


@job
def loss_scale() -> Any:
    keras.config.set_dtype_policy("mixed_float16")
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=2.0**40, dynamic_growth_steps=5
    )
    return result_of(model_of(layers.Dropout(0.2), optimizer=optimizer), shuffled())


@job
def several_steps_per_execution() -> Any:
    return result_of(model_of(layers.Dropout(0.2), steps_per_execution=2), shuffled(), epochs=4)


@job
def eagerly() -> Any:
    return result_of(model_of(layers.Dropout(0.2), run_eagerly=True), shuffled(), epochs=2)


# Data.


@job
def arrays_shuffled() -> Any:
    return result_of(model_of(), *rows(), batch_size=BATCH)


@job
def arrays_with_weights_and_split() -> Any:
    weights = np.linspace(0.5, 1.5, ROWS)
    return result_of(
        model_of(), *rows(), batch_size=BATCH, sample_weight=weights, validation_split=0.2, class_weight=None
    )


@job
def repeated_and_interleaved() -> Any:
    features, labels = rows()

    def part(index: Any) -> Any:
        return tf.data.Dataset.from_tensor_slices((features, labels)).shard(4, index).shuffle(10)

    data = tf.data.Dataset.range(4).interleave(part, cycle_length=2, num_parallel_calls=2, deterministic=True)
    data = data.shuffle(30).repeat().map(lambda x, y: (x * 2, y), num_parallel_calls=2).batch(BATCH).prefetch(2)
    return result_of(model_of(), data, steps_per_epoch=7, epochs=4)


@job
def repeated_with_small_state() -> Any:
    """The map runs for a rank's own rows only."""
    data = tf.data.Dataset.from_tensor_slices(rows()).shuffle(30).map(lambda x, y: (x * 2 - 1, y), num_parallel_calls=2)
    return result_of(model_of(), data.repeat().batch(BATCH).prefetch(2), steps_per_epoch=7, epochs=4)


@job
def large_shuffle_buffers() -> Any:
    features, labels = rows()
    wide = np.repeat(features, 500, axis=1)  # 1.2 MB: more than a snapshot takes
    data = tf.data.Dataset.from_tensor_slices((wide, labels)).shuffle(ROWS).map(lambda x, y: (x[:6], y)).batch(BATCH)
    return result_of(model_of(), data)


@job
def prefetched_to_the_end() -> Any:
    """Before the first snapshot: the shuffle has no rows left to give, and writes down no seeds."""
    data = tf.data.Dataset.from_tensor_slices(rows()).shuffle(40).batch(BATCH).prefetch(STEPS)
    return result_of(model_of(), data)


@job
def finite_data_over_several_epochs() -> Any:
    return result_of(model_of(), shuffled(), steps_per_epoch=5, epochs=2)


@job
def length_unknown() -> Any:
    data = tf.data.Dataset.from_tensor_slices(rows()).shuffle(40).filter(lambda x, y: x[0] > -1).batch(BATCH)
    return result_of(model_of(), data)


@job
def cached() -> Any:
    data = tf.data.Dataset.from_tensor_slices(rows()).cache().shuffle(40).batch(BATCH)
    return result_of(model_of(), data)


@job
def random_numbers_in_a_sequential_map() -> Any:
    data = shuffled().map(lambda x, y: (x + tf.random.normal(tf.shape(x)), y))
    return result_of(model_of(), data)


class Batches(keras.utils.PyDataset):
    """Shuffles its rows after each epoch, with a generator of its own and with NumPy's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.features, self.labels = rows()
        self.order = np.arange(ROWS)
        self.generator = np.random.default_rng()
        self.num_read: list[int] = []

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        chosen = self.order[index * BATCH : (index + 1) * BATCH]
        return self.features[chosen], self.labels[chosen]

    def on_epoch_end(self) -> None:
        self.generator.shuffle(self.order)
        np.random.shuffle(self.order[:50])


@job
def py_dataset() -> Any:
    return result_of(model_of(), Batches())


class ManyBatches(Batches):
    """The order of its rows is larger than what is kept whatever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.order = np.arange(6000 * ROWS)

    def __getitem__(self, index: int) -> Any:
        chosen = self.order[index * BATCH : (index + 1) * BATCH] % ROWS
        return self.features[chosen], self.labels[chosen]


@job
def py_dataset_of_many_rows() -> Any:
    return result_of(model_of(), ManyBatches())


@job
def py_dataset_with_threads() -> Any:
    return result_of(model_of(), Batches(workers=2))


class ShuffledAtBothEnds(Batches):
    """Shuffles where an epoch begins, too, and with Python's random numbers, from which Keras draws the batches."""

    def on_epoch_begin(self) -> None:
        self.generator.shuffle(self.order)
        np.random.shuffle(self.order)
        self.order[:] = np.roll(self.order, random.randrange(ROWS))


def shuffled_at_both_ends(**options: Any) -> Any:
    features, labels = rows()
    held_back = features[:40], labels[:40]
    return result_of(model_of(), ShuffledAtBothEnds(), validation_data=held_back, **options)


@job
def py_dataset_shuffled_at_both_ends() -> Any:
    return shuffled_at_both_ends()


@job
def py_dataset_one_iterator_ahead() -> Any:
    """With the number of steps given, Keras makes the iterator of an epoch at the end of the one before."""
    return shuffled_at_both_ends(steps_per_epoch=STEPS)


@job
def py_dataset_for_validation() -> Any:
    """A part of it in each epoch, and in another order; the second fit goes on with the order of the first."""
    held_back, model = ShuffledAtBothEnds(), model_of()
    options = {"validation_data": held_back, "validation_steps": 2, "batch_size": BATCH, "epochs": 3}
    first = fit(model, *rows(), **options).history
    fit(model, *rows(), **options)
    return told(model, first={name: list(map(repr, values)) for name, values in first.items()})


@job
def generator() -> Any:
    def batches() -> Iterator[Any]:
        features, labels = rows()
        drawn = np.random.default_rng(5)
        while True:
            chosen = drawn.permutation(ROWS)[:BATCH]
            yield features[chosen], labels[chosen]

    return result_of(model_of(), batches(), steps_per_epoch=7, epochs=4)


class ReadAhead:
    """Says how far data are read: not ahead of the first steps, and ahead of the third before a snapshot is taken.

    A run that goes on behind that step reads as much again, and no more until its own first step begins.

        with read_ahead:  # around each draw, in TensorFlow's thread
            ...

    Args:
        num_draws: As many as three batches take.
    """

    def __init__(self, num_draws: int) -> None:
        self._num_draws = num_draws
        self._num_drawn = 0
        self._is_open = False
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_open or self._num_drawn < self._num_draws, _DEADLINE_SECONDS)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._num_drawn += 1
            self._changed.notify_all()

    def callback(self) -> Any:
        return keras.callbacks.LambdaCallback(on_train_batch_begin=self._begins, on_train_batch_end=self._ends)

    def _begins(self, batch: int, logs: Any) -> None:
        if batch == 3:
            self._open()

    def _ends(self, batch: int, logs: Any) -> None:
        if batch == 2:
            self._open()
            with self._changed:
                assert self._changed.wait_for(lambda: self._num_drawn > self._num_draws, _DEADLINE_SECONDS)

    def _open(self) -> None:
        with self._changed:
            self._is_open = True
            self._changed.notify_all()


@job
def generators_that_draw_from_shared_numbers() -> Any:
    """They are read ahead, in another thread."""
    of_batches, of_rows = ReadAhead(3), ReadAhead(3 * BATCH)

    def batches() -> Iterator[Any]:
        features, labels = rows()
        while True:
            with of_batches:
                chosen = np.random.permutation(ROWS)[:BATCH]
            yield features[chosen], labels[chosen]

    def one_by_one() -> Iterator[Any]:
        for _ in range(ROWS):
            with of_rows:
                row = random.randrange(ROWS)
            yield tuple(column[row] for column in rows())

    spec = tf.TensorSpec((6,), tf.float32), tf.TensorSpec((), tf.int32)
    data = tf.data.Dataset.from_generator(one_by_one, output_signature=spec).batch(BATCH).prefetch(4)
    first, second = model_of(), model_of()
    fit(first, batches(), steps_per_epoch=6, epochs=2, callbacks=[of_batches.callback()])
    fit(second, data, epochs=2, callbacks=[of_rows.callback()])
    return told(first, second)


# State that Keras does not list.


class Rivals(keras.Model):
    """Trains two networks with an optimizer each; the one that `compile` makes is never used."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.noise = keras.random.SeedGenerator(3)
        self.forger = keras.Sequential([keras.Input((3,)), layers.Dense(width)])
        self.critic = keras.Sequential([keras.Input((width,)), layers.Dense(8, "relu"), layers.Dense(1)])

    def compile(self, critic_optimizer: Any, forger_optimizer: Any) -> None:
        super().compile()
        self.of_critic, self.others = critic_optimizer, {"forger": [forger_optimizer]}

    def train_step(self, data: Any) -> Any:
        real, loss = data[0], keras.losses.BinaryCrossentropy(from_logits=True)
        ones = tf.ones((tf.shape(real)[0], 1))
        drawn = keras.random.normal((tf.shape(real)[0], 3), seed=self.noise)
        with tf.GradientTape() as tape:
            critics = loss(ones, self.critic(real)) + loss(0 * ones, self.critic(self.forger(drawn)))
        weights = self.critic.trainable_weights
        self.of_critic.apply_gradients(zip(tape.gradient(critics, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            forgers = loss(ones, self.critic(self.forger(drawn)))
        weights = self.forger.trainable_weights
        self.others["forger"][0].apply(tape.gradient(forgers, weights), weights)
        return {"critic": critics, "forger": forgers}


@job
def optimizers_of_its_own() -> Any:
    features, _ = rows()
    with paceline.OneDeviceStrategy("/cpu:0").scope():
        model = Rivals(features.shape[1])
        model.compile(keras.optimizers.Adam(0.02), keras.optimizers.RMSprop(0.01))
    result = result_of(model, tf.data.Dataset.from_tensor_slices((features, features)).batch(BATCH))
    assert not model.optimizer.built, "going on from a snapshot built the one of `compile`, which nothing uses"
    return result


@job
def networks_that_the_first_step_builds() -> Any:
    features, _ = rows()
    model = Rivals(features.shape[1])
    model.forger, model.critic = (
        keras.Sequential([layers.Dense(features.shape[1])]),
        keras.Sequential([layers.Dense(1)]),
    )
    model.compile(keras.optimizers.Adam(0.02), keras.optimizers.RMSprop(0.01))
    model.optimizer.build([])  # never used; a rerun may build it, or not
    return result_of(model, tf.data.Dataset.from_tensor_slices((features, features)).batch(BATCH))


class Lookahead(keras.optimizers.Optimizer):
    """Leads another optimizer, as users write them: Keras lists neither that nor the slow weights."""

    def __init__(self, base: Any) -> None:
        super().__init__(learning_rate=1.0)
        self.base = base

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.base.build(variables)
        self.slow = [tf.Variable(variable, trainable=False) for variable in variables]

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        if not self.built:
            with tf.init_scope():
                self.build(trainable_variables)
        self.base.apply(grads, trainable_variables)
        self.iterations.assign_add(1)
        is_due = tf.cast(self.iterations % 3 == 0, tf.float32)
        for fast, slow in zip(trainable_variables or self._trainable_variables, self.slow, strict=True):
            slow.assign_add(0.5 * is_due * (fast - slow))
            fast.assign_add(is_due * (slow - fast))


@job
def optimizers_within_others_made_in_scope() -> Any:
    features, _ = rows()
    lookahead = Lookahead(keras.optimizers.Adam(0.02))
    with paceline.OneDeviceStrategy("/cpu:0").scope():
        model = Rivals(features.shape[1])
        model.compile(lookahead, keras.optimizers.RMSprop(0.01))
        model.optimizer.build(model.trainable_variables)  # never used; a rerun may build it, or not
    fit(model, tf.data.Dataset.from_tensor_slices((features, features)).batch(BATCH))
    return told(model, slow=[variable.numpy().tolist() for variable in lookahead.slow])


class Jitter(layers.Layer):
    """Counts its calls and draws numbers with what TensorFlow offers, as code does that is older than Keras 3."""

    def __init__(self) -> None:
        super().__init__()
        self.module = tf.Module()
        self.module.calls = tf.Variable(0.0, trainable=False)
        self.generator = tf.random.Generator.from_seed(4)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training:
            return inputs
        self.module.calls.assign_add(1.0)
        return inputs + self.generator.normal(tf.shape(inputs)) / self.module.calls


class Hardening(LOSS):
    """Counts for more from step to step."""

    def __init__(self) -> None:
        super().__init__(from_logits=True)
        self.factor = keras.Variable(1.0, trainable=False)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        self.factor.assign_add(0.01)
        return self.factor * super().call(y_true, y_pred)


@job
def variables_that_keras_does_not_list() -> Any:
    jitter, loss = Jitter(), Hardening()
    model = model_of(jitter)
    model.compile(keras.optimizers.SGD(0.1), loss)
    fit(model, *rows(), batch_size=BATCH, epochs=2)
    return told(model, calls=float(jitter.module.calls.numpy()), factor=float(loss.factor.numpy()))


# Callbacks.


class Counts(keras.callbacks.Callback):
    """A user's callback that knows nothing of snapshots; the script reads what it has gathered."""

    def __init__(self, losses: list[float]) -> None:
        super().__init__()
        self.losses = losses
        self.random = np.random.default_rng(9)
        self.num_epochs = 0
        self.rates: dict[int, float] = {}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(float(logs["loss"]) + self.random.uniform())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.num_epochs += 1
        self.rates[epoch] = float(self.model.optimizer.learning_rate.numpy())


class Hooked(keras.callbacks.Callback):
    """A user's callback with the documented hook."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = {"seen": object()}
        self.num_batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.num_batches += 1
        self.hidden = {"seen": self.num_batches}

    def get_state(self) -> dict[str, Any]:
        return {"num_batches": self.num_batches}

    def set_state(self, state: dict[str, Any]) -> None:
        self.num_batches = state["num_batches"]


@job
def early_stopping_and_plateau() -> Any:
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=2, min_delta=0.02, restore_best_weights=True)
    plateau = keras.callbacks.ReduceLROnPlateau("val_accuracy", factor=0.5, patience=1, min_delta=0.05)
    model = model_of(optimizer=keras.optimizers.SGD(0.5, momentum=0.5))
    features, labels = rows()
    fit(model, shuffled(), epochs=9, callbacks=[stopping, plateau], validation_data=(features[:40], labels[:40]))
    return told(model, stopped=stopping.stopped_epoch, best=repr(float(stopping.best)))


@job
def schedules_and_own_callbacks() -> Any:
    import paceline

    losses: list[float] = []
    counts, hooked = Counts(losses), Hooked()
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * (0.9 if epoch > 1 else 1.0))
    warmup = paceline.LearningRateWarmup(epochs=1.5, start=0.01)
    model = model_of()
    fit(model, shuffled(), callbacks=[warmup, schedule, counts, hooked])
    return told(
        model,
        losses=list(map(repr, losses)),
        epochs=counts.num_epochs,
        rates=counts.rates,
        seen=hooked.hidden,
        n=hooked.num_batches,
    )


@job
def loggers_and_backup() -> Any:
    """Files of a run that goes on are those of one that never stopped; `BackupAndRestore` has its own idea of it."""
    with tempfile.TemporaryDirectory() as other:
        folder = Path(os.environ.get("PACELINE_SNAPSHOT_DIR", other)) / "files"
        folder.mkdir(parents=True, exist_ok=True)
        rows_file = keras.callbacks.CSVLogger(str(folder / "rows.csv"))
        best = keras.callbacks.ModelCheckpoint(str(folder / "best.keras"), save_best_only=True, monitor="loss")
        backup = keras.callbacks.BackupAndRestore(str(folder / "backup"))
        model = model_of()
        fit(model, shuffled(), callbacks=[rows_file, best, backup])
        saved = keras.models.load_model(folder / "best.keras")
        text = (folder / "rows.csv").read_text()
    return told(
        model, best=repr(float(best.best)), text=text, saved=[float(np.sum(weight)) for weight in saved.get_weights()]
    )


@job
def loads_back() -> Any:
    """A callback that takes back what `ModelCheckpoint` has kept: nothing but a later file is there after a death."""
    with tempfile.TemporaryDirectory() as other:
        path = Path(os.environ.get("PACELINE_SNAPSHOT_DIR", other)) / "last.weights.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = keras.callbacks.ModelCheckpoint(str(path), save_weights_only=True, save_freq=1)
        model = model_of()
        take_back = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: model.load_weights(path) if batch else None
        )
        fit(model, shuffled(), callbacks=[kept, take_back], epochs=1)
        return told(model)


@job
def nothing_to_go_on_from() -> Any:
    """No snapshot is left: Keras's backup of weights and epoch, and rows that were appended, are of another life."""
    with tempfile.TemporaryDirectory() as other:
        folder = Path(os.environ.get("PACELINE_SNAPSHOT_DIR", other))
        files = folder / "files"
        files.mkdir(parents=True, exist_ok=True)
        for snapshot in folder.glob("step-*"):
            shutil.rmtree(snapshot)
        rows_file = keras.callbacks.CSVLogger(str(files / "rows.csv"), append=True)
        backup = keras.callbacks.BackupAndRestore(str(files / "backup"))
        model = model_of(layers.Dropout(0.2))
        fit(model, shuffled(), callbacks=[rows_file, backup])
        fit(model, shuffled(), callbacks=[rows_file], epochs=2)
        return told(model, text=(files / "rows.csv").read_text())


@job
def validation_data() -> Any:
    features, labels = rows()
    held_back = tf.data.Dataset.from_tensor_slices((features[:40], labels[:40])).shuffle(40).batch(BATCH)
    return result_of(model_of(layers.Dropout(0.2)), shuffled(), validation_data=held_back)


class Noise(layers.Layer):
    """Draws numbers in a validation, too, as a variational model does."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, inputs: Any) -> Any:
        return inputs + 0.1 * keras.random.normal(keras.ops.shape(inputs), seed=self.seeds)


@job
def model_changed_by_validation() -> Any:
    """A snapshot of a job that is told to stop there holds the model as it was before."""
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9)
    features, labels = rows()
    swap, held_back = keras.callbacks.SwapEMAWeights(), (features[:40], labels[:40])
    return result_of(model_of(Noise(), optimizer=optimizer), shuffled(), callbacks=[swap], validation_data=held_back)


# Several fits.


@job
def several_fits() -> Any:
    """Between them the script does what scripts do, and draws random numbers."""
    data = shuffled()
    model = model_of(layers.Dropout(0.2))
    first = fit(model, data, epochs=2).history
    between = model.evaluate(*rows(), verbose=0)
    drawn = [float(np.random.uniform()), float(tf.random.uniform([])), float(np.random.default_rng().uniform())]
    model.layers[0].trainable = False
    model.compile(keras.optimizers.Adam(0.02), LOSS(from_logits=True), metrics=["accuracy"])
    fit(model, data, epochs=2)
    other = model_of()
    fit(other, *rows(), batch_size=BATCH, epochs=1)
    return told(
        model,
        other,
        first={name: list(map(repr, values)) for name, values in first.items()},
        between=between,
        drawn=drawn,
    )


@job
def ends_of_fits_are_lost() -> Any:
    """Models of different shapes that read one shuffle, and a generator on which two of the fits go on."""
    data, (features, labels) = shuffled(), rows()
    held_back = itertools.cycle([(features[at : at + 10], labels[at : at + 10]) for at in range(0, ROWS, 10)])
    validating = {"validation_data": (pair for pair in held_back), "validation_steps": 3}
    models = [model_of(layers.Dense(width), layers.Dropout(0.2)) for width in (3, 5, 7)]
    between = []
    fit(models[0], data, epochs=2, **validating)
    between.append([repr(models[0].evaluate(*rows(), verbose=0)), float(np.random.uniform())])
    fit(models[1], *rows(), batch_size=BATCH, epochs=1)
    between.append([repr(models[1].evaluate(*rows(), verbose=0)), float(np.random.uniform())])
    fit(models[2], data, epochs=2, **validating)
    return told(*models, between=between)


class MakesItsOwn(keras.callbacks.Callback):
    """Makes what it needs when a `fit` begins."""

    random: Any = None
    counts: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.random = np.random.default_rng(4)
        self.counts = defaultdict(int)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.counts[int(self.random.integers(9))] += 1


class _Rows:
    """Read by their numbers."""

    def __init__(self) -> None:
        self._features, self._labels = rows()

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> Any:
        return self._features[row], self._labels[row]


@job
def files_and_rows_shuffled() -> Any:
    """As files are, and then their rows: the first shuffle is over before the second one has given a row."""
    features, labels = rows()
    files = tf.data.Dataset.range(4).shuffle(4)
    chosen = files.flat_map(lambda file: tf.data.Dataset.range(file * ROWS // 4, (file + 1) * ROWS // 4))
    data = chosen.shuffle(ROWS).map(lambda row: (tf.gather(features, row), tf.gather(labels, row))).batch(BATCH)
    model = model_of()
    fit(model, data, epochs=3)
    fit(model, data, epochs=2)
    return told(model)


def _in_two_fits(make: Callable[[Any], Any]) -> Callable[[], Any]:
    """Rows in orders of shuffles, more of which than a snapshot takes: they are read again."""

    def two_fits() -> Any:
        features, labels = rows()
        wide = tf.data.Dataset.from_tensor_slices((np.repeat(features, 500, axis=1), labels))
        data, model = make(wide).map(lambda x, y: (x[::500], y)).batch(BATCH), model_of()
        fit(model, data, epochs=3)
        fit(model, data, epochs=2)
        return told(model)

    return two_fits


def _captured(wide: Any) -> Any:
    some = wide.shuffle(ROWS).take(40)
    return tf.data.Dataset.range(3).flat_map(lambda _: some)


JOBS.update(
    repeats_in_two_fits=_in_two_fits(lambda wide: wide.shuffle(ROWS).repeat(2)),
    repeats_of_unknown_length_in_two_fits=_in_two_fits(
        lambda wide: wide.shuffle(ROWS).filter(lambda x, _: x[0] > -1).repeat(2)
    ),
    joined_in_two_fits=_in_two_fits(lambda wide: wide.shuffle(ROWS).concatenate(wide.shuffle(ROWS))),
    orders_cached_in_two_fits=_in_two_fits(lambda wide: wide.shuffle(ROWS).cache()),
    captured_in_two_fits=_in_two_fits(_captured),
)


@job
def rows_by_index_in_two_fits() -> Any:
    """Epochs of one source, whoever reads them: two fits, validations, an evaluation, and repeated data."""
    data, model = paceline.data.rows(_Rows(), BATCH, shuffle=True), model_of()
    fit(model, data, epochs=2, validation_data=data, validation_steps=3)
    between = model.evaluate(data.take(2), verbose=0)
    fit(model, data.repeat(), epochs=2, steps_per_epoch=STEPS + 2, validation_data=data)
    return told(model, between=between)


@job
def py_dataset_in_two_fits() -> Any:
    """The second one trains on with the order in which the first one has left the rows."""
    data, model, own = Batches(), model_of(), MakesItsOwn()
    fit(model, data, epochs=2, callbacks=[own])
    model.layers[0].trainable = False
    model.compile(keras.optimizers.Adam(0.02), LOSS(from_logits=True), metrics=["accuracy"])
    fit(model, data, epochs=2, callbacks=[own])
    return told(model, counts=sorted(own.counts.items()))


@job
def generator_in_two_fits() -> Any:
    """Read on where each reader is due to have left it, however far TensorFlow had come in either life."""

    def batches(seed: int) -> Iterator[Any]:
        features, labels = rows()
        drawn = np.random.default_rng(seed)
        while True:
            chosen = drawn.permutation(ROWS)[:BATCH]
            yield features[chosen], labels[chosen]

    data, held_back, model = batches(5), batches(6), model_of()
    options = {"steps_per_epoch": 7, "validation_data": held_back, "validation_steps": 3}
    fit(model, data, epochs=2, **options)
    between = model.evaluate(held_back, steps=2, verbose=0)
    history = fit(model, data, epochs=2, **options).history
    left = [float(next(generator)[0].sum()) for generator in (data, held_back)]
    return told(model, between=between, left=left, second={name: list(map(repr, history[name])) for name in history})


@job
def stopped_in_mid_epoch() -> Any:
    """Stops in a step of the second epoch that takes a snapshot, too."""
    model = model_of()
    stopping = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: _stop_after(model, STEPS + 2))
    features, labels = rows()
    fit(model, shuffled(), epochs=4, callbacks=[stopping], validation_data=(features[:40], labels[:40]))
    assert model.stop_training
    return told(model)


def _stop_after(model: Any, num_steps: int) -> None:
    model.stop_training = int(model.optimizer.iterations) >= num_steps


_EPOCHS_OF_LIVES = itertools.cycle([3, 3, 1, 3])
"""Undisturbed; one that dies in its last epoch; one that is told to stop before that; the last."""


@job
def fewer_epochs_and_then_all() -> Any:
    epochs, model = next(_EPOCHS_OF_LIVES), model_of()
    fit(model, shuffled(), epochs=epochs)
    if epochs == 1:
        assert model.optimizer.iterations == 3 * (2 * STEPS // 3 + 1)
        assert model.history.epoch == [0, 1]
        raise Death
    return told(model)


@job
def more_fits_than_ends_are_kept() -> Any:
    """Of the first ones a rerun has no snapshot, and yet the shuffle that they share goes on behind all of them."""
    features, labels = rows()
    wide = np.repeat(features[:40], 1500, axis=1)  # 1.4 MB: more than a snapshot takes of an iterator
    data = tf.data.Dataset.from_tensor_slices((wide, labels[:40])).shuffle(40).map(lambda x, y: (x[:6], y)).batch(BATCH)
    model = model_of()
    for _ in range(MANY_FITS):
        fit(model, data, epochs=1)
    return told(model)


class PrunedError(Exception):
    """As a search for hyperparameters raises it."""


class Prunes(keras.callbacks.Callback):
    """Gives a trial up."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == STEPS_UNTIL_PRUNED:
            raise PrunedError(float(logs["loss"]))


@job
def caught_exception() -> Any:
    """The script meets it again in each rerun, and the next trial goes on."""
    data, pruned, second = shuffled(), model_of(layers.Dropout(0.2)), model_of()
    caught = None
    try:
        fit(pruned, data, callbacks=[Prunes()])
    except PrunedError as error:
        caught = repr(error)
    fit(second, data, epochs=2)
    return told(pruned, second, caught=caught)


@job
def epochs_one_by_one() -> Any:
    data, model, seen = shuffled(), model_of(), []
    for _ in range(4):
        history = fit(model, data, epochs=1).history
        seen.append(repr(history["loss"][0]))
    return told(model, seen=seen)
