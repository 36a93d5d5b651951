"""What ranks decide, notice and end together: one function a case, each run by every rank of a warm world."""

import itertools
import logging
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from paceline import rank, world_size
from paceline.comm.world import current_world
from paceline.data.own_rows.local_batches import mark_as_local

layers = keras.layers
RANK, SIZE = rank(), world_size()
LAST = SIZE - 1
BATCH = 8
CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def table(rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(2.0, 3.0, size=(rows, 6)), generator.integers(0, 3, rows)


def batches(rows: int = 40, batch: int = BATCH) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(table(rows)).batch(batch)


def model_of(*middle: Any, optimizer: Any = None, **options: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((6,)), *(middle or [layers.Dense(5, "relu")]), layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.SGD(0.05), loss, **options)
    return model


def checksum(model: keras.Model) -> list[float]:
    return [float(np.sum(np.abs(values), dtype="float64")) for values in model.get_weights()]


class Steps(keras.callbacks.Callback):
    """Counts steps; does `act` after step number `at`, on the last rank only."""

    def __init__(self, act: Callable[[Any], None] = lambda model: None, at: int = -1) -> None:
        super().__init__()
        self.act, self.at, self.count = act, at, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.count += 1
        if RANK == LAST and self.count == self.at:
            self.act(self.model)


def fit(model: keras.Model, data: Any, steps: Steps, **options: Any) -> dict[str, Any]:
    history = model.fit(data, verbose=0, callbacks=[steps], **{"epochs": 2, **options}).history
    return {"steps": steps.count, "epochs": len(history["loss"]), "weights": checksum(model)}


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


class Pairs(keras.utils.PyDataset):
    """As keras.io's metric learning: anchors and positives of each class, and no axis of rows in front."""

    def __init__(self, entries: int = SIZE) -> None:
        super().__init__()
        self.entries = entries

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> np.ndarray:
        return np.ones((self.entries, 5, 6))


class Embedding(keras.Model):
    def train_step(self, data: Any) -> Any:
        data = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            similarities = keras.ops.einsum("ae,pe->ap", self(data[0], training=True), self(data[1], training=True))
            loss = self.compute_loss(y=keras.ops.arange(5), y_pred=similarities)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


class Replicas(keras.Model):
    """Takes all rows of a replica one by one, as many as it has been written for."""

    def train_step(self, data: Any) -> Any:
        data = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_mean(self(data[number]) ** 2) for number in range(2)]) / 2 / SIZE
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@case
def batches_without_an_axis_of_rows() -> Any:
    def of(kind: type[keras.Model] = Embedding, **options: Any) -> keras.Model:
        inputs = keras.Input((6,))
        model = kind(inputs, layers.Dense(3)(inputs))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
        return model

    slices, (x, y) = tf.data.Dataset.from_tensor_slices, table()
    stacked = slices(np.ones((2, 2, 5, 6)))
    undeclared = keras.Sequential([layers.Dense(3)])
    undeclared.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    unbuilt = keras.Sequential([layers.Dense(6)])
    unbuilt.compile("sgd", "mse")

    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.out = layers.Dense(6)

        def call(self, x: Any) -> Any:
            return self.out(x)

    own = Own()
    own.compile("sgd", "mse")
    hidden = slices((x, y)).map(lambda a, b: (tf.py_function(lambda row: row, [a], tf.float64), b))
    uneven = slices((x, y)).batch(8).map(lambda a, b: (a, b[:3]))
    calls: dict[str, Callable[[], Any]] = {
        "sequence": lambda: of().fit(Pairs(), verbose=0),
        "executions": lambda: of(steps_per_execution=2).fit(Pairs(), verbose=0),
        "eager": lambda: of(run_eagerly=True).fit(Pairs(), verbose=0),
        "replicas": lambda: of(Replicas).fit(Pairs(2 * SIZE), verbose=0),
        "single": lambda: model_of().fit(slices((x, y)).shuffle(4, seed=1), verbose=0),
        "single, held back": lambda: model_of().fit(x, y, validation_data=slices((x, y)), verbose=0),
        "single, evaluated": lambda: model_of().evaluate(slices((x, y)), verbose=0),
        "single, predicted": lambda: model_of().predict(slices(x), verbose=0),
        "single, by labels": lambda: undeclared.fit(slices((x, y)), verbose=0),
        "single, by what the model takes": lambda: unbuilt.fit(slices((x, x)), verbose=0),
        "single, by what the call takes": lambda: own.fit(slices((x, x)), verbose=0),
        "single, of unknown shape": lambda: undeclared.fit(hidden, verbose=0),
        "scalars": lambda: model_of().fit(tf.data.Dataset.range(40), verbose=0),
        "single, on_batch": lambda: model_of().train_on_batch(x[0], y[0]),
        "differing": lambda: model_of().fit(slices((x[np.newaxis], y[np.newaxis, :3])), verbose=0),
        "differing, as read": lambda: model_of().fit(uneven, verbose=0),
        "differing, in a loop": lambda: list(model_of().distribute_strategy.experimental_distribute_dataset(uneven)),
        "differing, predicted": lambda: model_of().predict(uneven, verbose=0),
        "differing, on_batch": lambda: model_of().test_on_batch(x, y[:3]),
        "one row": lambda: model_of().fit(batches(1), verbose=0),
        "a row at a time": lambda: model_of().fit(((x[:1], y[:1]) for _ in range(4)), steps_per_epoch=2, verbose=0),
        "one row on_batch": lambda: model_of().predict_on_batch(x[:1]),
        "with a scalar": lambda: model_of().predict(batches(7, 3).map(lambda a, b: (a, 0.5)), verbose=0),
        "in order": lambda: model_of().predict(slices(x).batch(5, drop_remainder=True), verbose=0),
    }
    if SIZE == 2:
        calls["known sizes"] = lambda: of().fit(stacked, verbose=0)  # with 3, a rank has nothing to fail with
        calls["on_batch"] = lambda: of().train_on_batch(np.ones((2, 5, 6)))
    return {name: error_of(call) for name, call in calls.items()}


class Numbered(keras.Model):
    """Tells the number that fills a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.out = layers.Dense(1, "linear", kernel_initializer="ones")

    def call(self, x: Any) -> Any:
        return self.out(x)

    def train_step(self, data: Any) -> Any:
        return {**super().train_step(data), "number": tf.reduce_mean(data[0])}

    def test_step(self, data: Any) -> Any:
        return {**super().test_step(data), "number": tf.reduce_mean(data[0])}


class Seen(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[Any] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.numbers.append([])

    def on_test_begin(self, logs: Any = None) -> None:
        self.numbers.append([])

    def on_train_batch_end(self, batch: int, logs: Any) -> None:
        self.numbers[-1].append(round(float(logs["number"]), 3))

    def on_test_batch_end(self, batch: int, logs: Any) -> None:
        self.numbers[-1].append(round(float(logs["number"]), 3))


def numbered(*, shifted_from: int | None = None, end: int | None = None) -> Any:
    """Batches of consecutive numbers without end, which ranks are not equally quick to make."""
    for number in itertools.count() if end is None else range(end):
        time.sleep(0.004 * ((RANK + number) % 2))
        shift = RANK == LAST and shifted_from is not None and number >= shifted_from
        yield np.full((6, 1), number + shift, "float64"), np.zeros((6, 1))


def numbered_model(steps_per_execution: int = 1) -> Any:
    model = Numbered()
    model.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=steps_per_execution)
    return model


@case
def generators_read_by_one_call_after_the_other() -> Any:
    """Keras begins each iterator with the two batches that it has looked at, and reads one ahead."""
    found = {}
    for by in (1, 2):
        model, training, held_back, seen = numbered_model(by), numbered(), numbered(), Seen()
        constant = np.full((6, 1), -1.0), np.zeros((6, 1))
        options = {"verbose": 0, "callbacks": [seen]}
        model.fit(*constant, batch_size=6, epochs=3, validation_data=held_back, validation_steps=4, **options)
        model.fit(training, steps_per_epoch=4, epochs=2, **options)
        model.fit(training, steps_per_epoch=4, epochs=1, validation_data=held_back, validation_steps=4, **options)
        model.evaluate(training, steps=4, **options)
        predicted = model.predict(training, steps=2, verbose=0)[::6, 0].tolist()
        left = [float(next(data)[0][0, 0]) for data in (training, held_back)]
        found[f"by {by}"] = [*seen.numbers, predicted, left]
    return found


@case
def a_generator_whose_fit_ends_early() -> Any:
    """By `stop_training`, by an exception of a callback, by its own, and by its end."""
    model, training, seen, found = numbered_model(), numbered(end=20), Seen(), []

    def stop(batch: int, logs: Any) -> None:
        model.stop_training = batch == 1

    def fail(batch: int, logs: Any) -> None:
        if batch == 1:
            raise ArithmeticError

    for act in (stop, fail):
        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=act), seen]
        found.append(error_of(lambda: model.fit(training, steps_per_epoch=4, verbose=0, callbacks=callbacks)))  # noqa: B023
    found.append(float(next(training)[0][0, 0]))
    model.fit(training, epochs=2, verbose=0, callbacks=[seen])
    return [*found, *seen.numbers, error_of(lambda: model.evaluate(training))[:40]]


@case
def generators_that_shift_on_the_last_rank() -> Any:
    """In the second epoch of the training data, and in the second of the validation's."""
    x, y = np.full((12, 1), -1.0), np.zeros((12, 1))
    return [
        error_of(lambda: numbered_model().fit(numbered(shifted_from=6), steps_per_epoch=4, epochs=3, verbose=0)),
        error_of(
            lambda: numbered_model().fit(
                x, y, 6, 3, verbose=0, validation_data=numbered(shifted_from=5), validation_steps=4
            )
        ),
    ]


@case
def one_rank_stops() -> Any:
    return fit(model_of(), batches(), Steps(lambda model: setattr(model, "stop_training", True), at=3))


@case
def one_rank_changes_the_learning_rate() -> Any:
    def change(model: keras.Model) -> None:
        model.optimizer.learning_rate = 0.5

    model = model_of()
    return {**fit(model, batches(), Steps(change, at=2)), "rate": float(model.optimizer.learning_rate.numpy())}


@case
def one_rank_raises_stop_iteration() -> Any:
    def end(model: keras.Model) -> None:
        raise StopIteration

    return fit(model_of(), batches(), Steps(end, at=3), epochs=1)


@case
def collectives_that_ordinary_callbacks_cost() -> Any:
    """Per batch: one that decides nothing, and one that gives every batch a learning rate, the same on all ranks."""

    def collectives_of(callback: keras.callbacks.Callback) -> int:
        group = current_world().data
        before = group.num_entered
        fit(model_of(), batches(), callback)
        return group.num_entered - before

    class Warming(Steps):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)
            self.model.optimizer.learning_rate = 0.001 * self.count

    silent = Steps()
    silent.same_on_all_ranks = True
    least = collectives_of(silent)
    return [(collectives_of(callback) - least) / silent.count for callback in (Steps(), Warming())]


@case
def nan_in_the_last_ranks_rows_terminates_all() -> Any:
    x, y = table()
    x[2 * BATCH + BATCH - 1] = np.nan
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    steps = Steps()
    model_of().fit(data, epochs=2, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN(), steps])
    return steps.count


def generated(rows: int) -> tf.data.Dataset:
    """Batches that do not say how many they are."""
    x, y = table()

    def generate() -> Any:
        for begin in range(0, rows, BATCH):
            yield x[begin : begin + BATCH], y[begin : begin + BATCH]

    signature = (tf.TensorSpec((None, 6), tf.float64), tf.TensorSpec((None,), tf.int64))
    return tf.data.Dataset.from_generator(generate, output_signature=signature)


@case
def the_last_ranks_data_ends_early() -> Any:
    data = generated(24 if RANK == LAST else 40)
    model = model_of(layers.BatchNormalization(), layers.Dropout(0.3), optimizer=keras.optimizers.Adam(0.01))
    found = fit(model, data, Steps())
    seeds = [int(number) for layer in model.layers[1:2] for number in layer.seed_generator.state.numpy()]
    return {**found, "seeds": seeds, "iterations": int(model.optimizer.iterations.numpy())}


@case
def ranks_feed_different_numbers_of_batches() -> Any:
    own = mark_as_local(batches(16 + 8 * RANK))
    return fit(model_of(layers.BatchNormalization()), own, Steps())


def data_ends_within_an_execution(steps_per_execution: int) -> Any:
    """5 batches; the last rank's, where there are several, end after 3 of them."""
    found = {}
    for name, rows in (("alike", 40), ("early", 24 if RANK == LAST else 40)):
        model = model_of(steps_per_execution=steps_per_execution)
        found[name] = {
            **fit(model, generated(rows), Steps()),
            "iterations": int(model.optimizer.iterations.numpy()),
            "evaluated": bool(np.isfinite(model.evaluate(generated(rows), verbose=0))),
        }
    return found


@case
def data_ends_within_an_execution_of_2() -> Any:
    return data_ends_within_an_execution(2)


@case
def data_ends_within_an_execution_of_3() -> Any:
    return data_ends_within_an_execution(3)


@case
def own_batches_without_an_axis_of_rows_end_within_an_execution() -> Any:
    """A scalar beside the rows, so that no batch can be without rows: the ranks end with the first one."""
    own = batches(40 + 16 * RANK).map(lambda x, y: ((x, tf.constant(0.5, tf.float64)), y))

    class Scaled(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(3)

        def call(self, inputs: Any) -> Any:
            rows, factor = inputs
            return self.dense(rows) * factor

    model = Scaled()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss, steps_per_execution=3)
    return fit(model, mark_as_local(own), Steps())


@case
def images_of_unknown_size_on_some_ranks_only() -> Any:
    """The last rank has no image at all: its empty batches must not be smaller than the model's window."""

    def generate() -> Any:
        for number in range(3):
            yield np.full((4, 7 + number, 9, 2), 0.1 * number), np.arange(4) % 3

    signature = (tf.TensorSpec((None, None, None, 2), tf.float64), tf.TensorSpec((None,), tf.int64))
    count = 0 if RANK == LAST and SIZE > 1 else 3 - RANK
    own = tf.data.Dataset.from_generator(generate, output_signature=signature).take(count)
    own = own.apply(tf.data.experimental.assert_cardinality(count))
    model = keras.Sequential(
        [keras.Input((None, None, 2)), layers.Conv2D(3, 5), layers.GlobalAveragePooling2D(), layers.Dense(3)]
    )
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return fit(model, mark_as_local(own), Steps())


class Statistics(keras.callbacks.Callback):
    """The moving statistics of the model's first layer after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.of_steps: list[list[float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        normalization = self.model.layers[0]
        self.of_steps.append(np.concatenate([normalization.moving_mean, normalization.moving_variance]).tolist())


@case
def moving_statistics() -> Any:
    """The last batch has one row: all ranks but one have none."""
    statistics = Statistics()
    model_of(layers.BatchNormalization()).fit(batches(17), epochs=2, verbose=0, callbacks=[statistics])
    return statistics.of_steps


@case
def steps_that_ranks_trace_differently() -> Any:
    class OfRank(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            return {**super().train_step(data), "rank": tf.constant(7.0 if RANK == LAST else 5.0)}

    class OfOneRank(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            if RANK == LAST:
                tf.print("the last")
            return super().train_step(data)

    def of(kind: Any) -> Any:
        model = kind([keras.Input((6,)), layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    x, y = table()
    layers.Dense(1, name=f"dense_{RANK}")  # names may differ
    of(keras.Sequential).fit(x, y, verbose=0)
    return [error_of(lambda kind=kind: of(kind).fit(x, y, verbose=0)) for kind in (OfRank, OfOneRank)]


class OwnTrainFunction(keras.Sequential):
    """Its steps are not made by Keras."""

    def make_train_function(self, force: bool = False) -> Any:
        @tf.function
        def one(iterator: Any) -> Any:
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

        self.train_function = one


@case
def a_train_function_of_its_own() -> Any:
    model = OwnTrainFunction([keras.Input((6,)), layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return error_of(lambda: model.fit(batches(), verbose=0))


@case
def traces_of_a_step() -> Any:
    """Variables that only the first step makes, the optimizer's, would make TensorFlow trace it again.

    Metrics are made by a step of the user's, as in plain Keras, which decides what they are given.
    """
    traces: dict[str, int] = {"loss": 0, "accuracy": 0}

    class Traced(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            traces[self.name] += 1
            return super().train_step(data)

    for name, metrics in (("loss", None), ("accuracy", ["accuracy"])):
        model = Traced([keras.Input((6,)), layers.Dense(3)], name=name)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, metrics=metrics)
        model.fit(batches(42), epochs=2, verbose=0)
    return traces


@case
def data_distributed_by_the_script() -> Any:
    """Given to `fit` as Keras takes it: known to be distributed, and compared over ranks all the same."""
    strategy = model_of().distribute_strategy
    distributed = strategy.experimental_distribute_dataset(batches())
    return [
        isinstance(distributed, tf.distribute.DistributedDataset) or SIZE == 1,
        fit(model_of(), distributed, Steps())["steps"],
        fit(model_of(), distributed, Steps(), class_weight={0: 1.0, 1: 2.0, 2: 3.0})["steps"],
    ]


@case
def data_sharded_by_hand() -> Any:
    """Ranks feed 12 rows each in global batches of 7: as many steps as shares of a batch, 7 / N, need for them."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    model = model_of(layers.Dropout(0.2), optimizer=keras.optimizers.Adam(0.01))
    steps = Steps()
    found = fit(model, batches(12, 7).with_options(options), steps, epochs=np.int64(2))
    seeds = [int(number) for number in model.layers[0].seed_generator.state.numpy()]
    return {**found, "iterations": int(model.optimizer.iterations.numpy()), "draws": seeds[1]}


@case
def own_data_with_more_batches_in_later_epochs() -> Any:
    """Steps up to the end of each epoch: the last rank has 1, 4, 2 and 5 batches of it, the others always 2."""
    numbers = iter([[1, 4, 2, 5], [2] * 4][RANK != LAST])

    def rows_of_epoch(_: Any) -> tf.data.Dataset:
        number = tf.numpy_function(lambda: np.int64(next(numbers)), [], tf.int64)
        return tf.data.Dataset.range(tf.ensure_shape(number, []))

    own = tf.data.Dataset.from_tensors(0).flat_map(rows_of_epoch).map(lambda row: (tf.ones((1, 6)), tf.zeros((1,))))
    steps = Steps()
    ends: list[int] = []
    noted = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(steps.count))
    model_of().fit(mark_as_local(own), epochs=4, verbose=0, callbacks=[steps, noted])
    return ends


@case
def predictions_from_own_data_of_unknown_length() -> Any:
    """Rank r has r + 1 batches and says so to nobody; by one and by two steps at a time."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF

    def numbers(count: int) -> tf.data.Dataset:
        """Rank r's are 100 r, 100 r + 1, …"""
        own = tf.data.Dataset.range(100 * RANK, 100 * RANK + count).batch(4)
        return own.filter(lambda rows: True)  # does not know its length any more

    found = {}
    for steps_per_execution in (1, 2):
        model = keras.Sequential([keras.Input((), dtype="int64"), layers.Reshape((1,))])
        model.compile(steps_per_execution=steps_per_execution)
        for name, data in (
            ("sharded by hand", numbers(4 * RANK + 4).with_options(options)),
            ("marked", mark_as_local(numbers(4 * RANK + 4))),
            ("of scalars, too", mark_as_local(numbers(4 * RANK + 4).map(lambda rows: (rows, tf.constant(1))))),
        ):
            found[f"{name} by {steps_per_execution}"] = model.predict(data, verbose=0).ravel().tolist()
    return found


@case
def predictions_of_every_kind() -> Any:
    """Of 10 rows in batches of 4: dense, text, ragged and sparse ones, and numbers of a whole batch."""

    class Model(keras.Model):
        def predict_step(self, data: Any) -> Any:
            rows, *_ = keras.utils.unpack_x_y_sample_weight(data)
            numbers = tf.cast(rows[:, 0], tf.int64)
            ragged = tf.ragged.range(numbers)
            return {
                "dense": numbers,
                "text": tf.strings.reduce_join(tf.strings.as_string(rows), axis=1),
                "ragged": ragged,
                "sparse": tf.sparse.from_dense(ragged.to_tensor(shape=[None, 10])),
                "mean": tf.reduce_mean(rows),
                "constant": tf.constant(3),
            }

    rows = np.arange(10.0).reshape(10, 1) + np.array([[0.0, 0.5]])
    outputs = Model().predict(rows, batch_size=4, verbose=0)
    outputs["sparse"] = tf.sparse.to_dense(outputs["sparse"]).numpy()
    return {
        name: [[str(part) for part in np.ravel(row)] for row in values.to_list()]
        if isinstance(values, tf.RaggedTensor)
        else [str(part) for part in values.ravel()]
        for name, values in outputs.items()
    }


@case
def another_model_on_the_last_rank() -> Any:
    model = model_of(layers.Dense(7 if RANK == LAST else 5))
    return error_of(lambda: model.fit(batches(), verbose=0))


@case
def another_dtype_on_the_last_rank() -> Any:
    x, y = table()
    data = tf.data.Dataset.from_tensor_slices((x.astype("float32" if RANK == LAST else "float64"), y)).batch(BATCH)
    return error_of(lambda: model_of().fit(data, verbose=0))


@case
def other_step_counts_on_the_last_rank() -> Any:
    return error_of(lambda: model_of().fit(batches(32 if RANK == LAST else 40), verbose=0))


@case
def other_epochs_on_the_last_rank() -> Any:
    return error_of(lambda: model_of().fit(batches(), epochs=3 if RANK == LAST else 2, verbose=0))


@case
def more_steps_than_the_data_has() -> Any:
    x, y = table()

    class Items(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            return x[index * BATCH :][:BATCH], y[index * BATCH :][:BATCH]

    fits = {"dataset": (batches(),), "arrays": (x, y, BATCH), "items": (Items(),)}

    def error_of_fit(data: Any) -> str:
        return error_of(lambda: model_of().fit(*data, steps_per_epoch=9, verbose=0))

    return {name: error_of_fit(data) for name, data in fits.items()}


def said_in(call: Callable[[], Any]) -> list[str]:
    """What Paceline logs on this rank meanwhile."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logger = logging.getLogger("paceline")
    logger.addHandler(handler)
    try:
        call()
    finally:
        logger.removeHandler(handler)
    return said


@case
def the_first_line_of_fit() -> Any:
    """Said for each `fit`, it was most of what a script printed that calls `fit` for every epoch."""

    def fits() -> None:
        model = model_of()
        for batch_size in (7, 7, 4, 7):
            model.fit(*table(), batch_size=batch_size, verbose=0, validation_data=batches(5))
        model_of().fit(*table(), batch_size=7, verbose=0)

    model_of()  # the first model of a job is told of its strategy
    return said_in(fits)


class Sums(layers.Layer):
    """Adds its rows up, as the layer of a Keras guide does."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.add_weight(shape=(6,), initializer="zeros", trainable=False, name="total")

    def call(self, inputs: Any) -> Any:
        self.total.assign_add(keras.ops.sum(inputs, axis=0))
        return inputs


@case
def weights_that_a_layer_assigns() -> Any:
    model = model_of(layers.BatchNormalization(), Sums())
    model.fit(batches(), verbose=0)
    return [weight.tolist() for weight in model.get_weights()]


class InABranch(keras.Model):
    """Trains where the loss is large."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.build(variables)
        tf.cond(loss > 2.0, lambda: self.optimizer.apply(gradients, variables), lambda: None)
        return {"loss": loss}


@case
def weights_trained_in_a_branch() -> Any:
    inputs = keras.Input((2,))
    model = InABranch(inputs, layers.Dense(1, kernel_initializer="zeros", name="out")(inputs))
    model.compile("sgd")
    rows = tf.data.Dataset.from_tensor_slices((np.ones((6, 2)), np.arange(6.0)[:, None])).batch(6)
    model.fit(rows, verbose=0)
    return [weight.tolist() for weight in model.get_weights()]


@case
def states_of_sequences() -> Any:
    model = keras.Sequential([keras.Input(batch_shape=(6, 2, 3)), layers.GRU(4, stateful=True)])
    model.compile("sgd", "mse")
    model.set_weights([np.linspace(-1, 1, weight.size).reshape(weight.shape) for weight in model.get_weights()])
    x, _ = table(36)
    history = model.fit(x.reshape(-1, 2, 3), np.zeros((36, 4)), batch_size=6, epochs=2, shuffle=False, verbose=0)
    states = [state.numpy().tolist() for state in model.layers[0].states]
    return [history.history["loss"], *(weight.numpy().tolist() for weight in model.trainable_weights), *states]


@case
def callbacks_that_disagree_strictly() -> Any:
    os.environ["PACELINE_STRICT"] = "1"
    try:
        callbacks = [keras.callbacks.TerminateOnNaN(), Steps(lambda model: setattr(model, "stop_training", True), at=2)]
        return error_of(lambda: model_of().fit(batches(), verbose=0, callbacks=callbacks))
    finally:
        del os.environ["PACELINE_STRICT"]


@case
def ranks_that_set_learning_rates_of_their_own() -> Any:
    """The last rank's is not a number; strictly, so that the message has every rank's rate and callback."""
    os.environ["PACELINE_STRICT"] = "1"
    try:
        act = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: model.optimizer.learning_rate.assign(
                float("nan") if RANK == LAST else 0.5 + RANK
            )
        )
        model = model_of()
        return error_of(lambda: model.fit(batches(), verbose=0, callbacks=[act]))
    finally:
        del os.environ["PACELINE_STRICT"]


@case
def moving_statistics_in_a_custom_loop() -> Any:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = model_of(layers.BatchNormalization())

    @tf.function
    def train(x: Any) -> None:
        strategy.run(lambda rows: model(rows, training=True), args=(x,))

    for x, _ in strategy.experimental_distribute_dataset(batches(18)):
        train(x)
    return np.concatenate([model.layers[0].moving_mean, model.layers[0].moving_variance]).tolist()


@case
def run_of_a_tf_function() -> Any:
    """`strategy.run` of a `tf.function`, called eagerly, over batches of 4, 4 and 3 rows; metrics made in the scope."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), layers.BatchNormalization(), layers.Dense(2)])
        optimizer = keras.optimizers.SGD(0.01)
        of_steps, outside = keras.metrics.Mean(), keras.metrics.Sum()

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = model(x, training=True)
            if tf.reduce_sum(y) > 1e9:  # AutoGraph's
                tf.print("large")
            loss = tf.nn.compute_average_loss(tf.reduce_sum(y**2, -1), global_batch_size=4)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        of_steps.update_state(tf.reduce_sum(x, -1))
        return loss

    statistics = []
    for x, _ in strategy.experimental_distribute_dataset(batches(11, batch=4)):
        strategy.run(step, args=(x,))
        statistics.append(model.layers[0].moving_mean.numpy().tolist())
    outside.update_state(5.0)
    return {"means": statistics, "of_steps": float(of_steps.result()), "outside": float(outside.result())}


def run_case(name: str) -> Any:
    """What the case returned on this rank."""
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(1)
    return CASES[name]()
