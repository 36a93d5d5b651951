"""Cases of `test_dispatched_fits.py`, with models of their own on the servers of this process."""

import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "strategy"))
from blocking_layer import ENDLESS, Blocking, Trap
from servers_in_process import strategy as strategy_of

from paceline.cluster.spec import Address, ClusterSpec
from paceline.parameter_server.chief_metrics import ChiefMetrics
from paceline.parameter_server.dispatched_functions import cancel, dispatcher_of, version_of
from paceline.strategy.chief_of_servers import lost_servers
from paceline.strategy.parameter_server import EvaluatingStrategy

ROWS, WIDTH = 210, 5
"""Batches of 16: the last one is smaller."""


def run_case(name: str, *arguments: str) -> Any:
    return globals()[name](*arguments)


class Largest(keras.metrics.Metric):
    """The largest label: a metric that does more than add."""

    def __init__(self, name: str = "largest") -> None:
        super().__init__(name=name)
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        del y_pred, sample_weight
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(keras.ops.cast(y_true, self.dtype))))

    def result(self) -> Any:
        return self.value


class Rows(keras.metrics.Metric):
    """Counts rows, as the documentation of Keras shows it: by assigning a sum."""

    def __init__(self, name: str = "rows") -> None:
        super().__init__(name=name)
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        del y_pred, sample_weight
        self.count.assign(self.count + keras.ops.cast(keras.ops.shape(y_true)[0], self.dtype))

    def result(self) -> Any:
        return self.count


def data(rows: int = ROWS) -> tuple[Any, Any]:
    random = np.random.default_rng(1)
    x = random.normal(size=(rows, WIDTH)).astype("float32")
    return x, (x.sum(1, keepdims=True) > 0).astype("float32")


def layers() -> list[Any]:
    return [
        keras.Input((WIDTH,)),
        keras.layers.Dense(8, "tanh"),
        keras.layers.Dropout(0.1, seed=3),
        keras.layers.Dense(1, "sigmoid"),
    ]


def model_of(metrics: Any = list, **options: Any) -> Any:
    keras.utils.set_random_seed(7)
    with strategy_of(num_servers=2).scope():
        model = keras.Sequential(layers())
        options = {"optimizer": keras.optimizers.Adam(0.02), "loss": "binary_crossentropy", **options}
        model.compile(metrics=metrics(), **options)
    return model


def local_copy(model: Any, metrics: Any = ()) -> Any:
    """The same model in this process alone."""
    copy = keras.Sequential(layers())
    copy.compile(loss="binary_crossentropy", metrics=list(metrics))
    copy.set_weights(model.get_weights())
    return copy


def all_metrics() -> list[Any]:
    return [
        "accuracy",
        keras.metrics.AUC(name="auc"),
        keras.metrics.F1Score(threshold=0.5, name="f1"),
        keras.metrics.BinaryIoU(name="iou"),
        keras.metrics.MeanAbsoluteError(name="mae"),
        Rows(),
        Largest(),
    ]


def as_floats(logs: Any) -> Any:
    return {name: np.asarray(value, "float64").tolist() for name, value in logs.items()}


def trained(steps_per_execution: str) -> Any:
    """A `fit` of arrays with validation, then what it has counted; `evaluate` and `predict` beside one process."""
    x, y = data()
    model = model_of(all_metrics, steps_per_execution=int(steps_per_execution))
    history = model.fit(x, y, batch_size=16, epochs=3, verbose=0, validation_data=(x[:50], y[:50])).history
    copy = local_copy(model, all_metrics())
    return {
        "history": as_floats(history),
        "iterations": int(model.optimizer.iterations.numpy()),
        "evaluated": as_floats(model.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)),
        "expected": as_floats(copy.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)),
        "difference": float(np.abs(model.predict(x, batch_size=16, verbose=0) - copy.predict(x, verbose=0)).max()),
    }


def each_row_once(kind: str) -> Any:
    """How often a `fit` has trained on each row, for one kind of data; row i has i in its first column."""
    x, y = data(64)
    x[:, 0] = np.arange(64)
    counts = np.zeros(64)

    class Seen(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="seen")
            self.seen = self.add_variable((64,), "zeros", name="seen")

        def update_state(self, x: Any) -> None:
            self.seen.assign_add(keras.ops.sum(keras.ops.one_hot(keras.ops.cast(x[:, 0], "int32"), 64), 0))

        def result(self) -> Any:
            return self.seen

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.seen = Seen()

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:
            x, *_ = data
            self.seen.update_state(x)
            return {**super().train_step(data), "seen": self.seen.result()}

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            return x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]

    def generator() -> Any:
        for index in range(8):
            yield x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]

    strategy = strategy_of(num_servers=2)
    with strategy.scope():
        model = Model()
        model.compile("sgd", "mse")

    class Counts(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            counts[:] += np.asarray(logs["seen"])

    options: dict[str, Any] = {
        "arrays": {"x": x, "y": y, "batch_size": 8},
        "split": {"x": x, "y": y, "batch_size": 8, "validation_split": 0.5},
        "dataset": {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(8)},
        "repeated": {"x": tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8), "steps_per_epoch": 8},
        "pydataset": {"x": Batches(workers=1)},
        "generator": {"x": generator()},
        "weights": {"x": x, "y": y, "batch_size": 8, "sample_weight": np.ones(64, "float32")},
        "classes": {"x": x, "y": y, "batch_size": 8, "class_weight": {0: 1.0, 1: 3.0}},
    }[kind]
    model.fit(**options, verbose=0, epochs=1, callbacks=[Counts()])
    return counts.tolist()


def dataset_functions(takes_context: str) -> Any:
    """Each worker reads its own part of the data; what `fit` and `evaluate` have seen, and the parts that were made."""
    x, y = data(64)

    def rows(context: Any) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices((x, y))
        return dataset.shard(context.num_input_pipelines, context.input_pipeline_id).repeat().batch(8)

    model = model_of(lambda: [Rows()])
    function = rows if takes_context == "yes" else lambda: tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8)
    history = model.fit(
        function, steps_per_epoch=10, epochs=2, verbose=0, validation_data=function, validation_steps=3
    ).history
    return as_floats(history), int(model.optimizer.iterations.numpy())


def ended_dataset_function() -> Any:
    x, y = data(16)
    model = model_of()
    return fault_of(
        lambda: model.fit(
            lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(8), steps_per_epoch=50, epochs=1, verbose=0
        )
    )


def fault_of(call: Any) -> Any:
    try:
        call()
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"
    return None


def not_a_number() -> Any:
    """In which epoch `TerminateOnNaN` ends a `fit` whose epochs have so many batches, the last without a number."""
    stopped = []
    for num_batches in (1, 3, 12):
        x, y = data(8 * num_batches)
        x[-1] = np.nan
        model = model_of()
        callbacks = [keras.callbacks.TerminateOnNaN()]
        history = model.fit(x, y, batch_size=8, epochs=4, shuffle=False, verbose=0, callbacks=callbacks)
        stopped.append([*history.epoch, bool(model.stop_training)])
    return stopped


def devices() -> Any:
    """Where the weights of an embedding lie, as TensorFlow's tutorial asks; and of a dense layer."""
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    with strategy_of(num_servers=2, variable_partitioner=partitioner).scope():
        table, dense = keras.layers.Embedding(8, 2), keras.layers.Dense(1)
        table.build((None,))
    with strategy_of(num_servers=2).scope():
        dense.build((None, 3))
    return [weight.device for weight in table.weights], dense.bias.device


def refused() -> Any:
    """What wrong uses are told, by name."""
    x, y = data(32)
    endless = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8)
    model = model_of()
    dense = keras.layers.Dense(1)
    dense.build((None, WIDTH))
    with model.distribute_strategy.scope():
        parts_outside = keras.Sequential([keras.Input((WIDTH,)), dense])
        parts_outside.compile("sgd", "mse")
    return {
        "endless validation": fault_of(lambda: model.fit(x, y, validation_data=endless, verbose=0)),
        "endless evaluation": fault_of(lambda: model.evaluate(endless, verbose=0)),
        "function": fault_of(lambda: model.fit(lambda: endless, verbose=0)),
        "parts outside": fault_of(lambda: parts_outside.fit(x, y, verbose=0)),
        "python in data": fault_of(
            lambda: model.fit(
                lambda: endless.map(lambda x, y: (tf.numpy_function(np.abs, [x], tf.float32), y)),
                steps_per_epoch=2,
                verbose=0,
            )
        ),
    }


def callbacks(folder: str) -> Any:
    """What Keras's callbacks do, with two steps in an execution."""
    x, y = data(96)
    model = model_of(lambda: ["accuracy"], steps_per_execution=2)
    seen: list[Any] = []

    class Told(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append([batch, sorted(logs), logs["loss"]])

    history = model.fit(
        x,
        y,
        batch_size=8,
        epochs=3,
        initial_epoch=1,
        verbose=2,
        validation_data=(x, y),
        callbacks=[
            Told(),
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=0, min_delta=10.0),
            keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", monitor="val_loss", save_best_only=True),
            keras.callbacks.ReduceLROnPlateau(monitor="val_loss", min_delta=10.0, patience=1),
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
            keras.callbacks.TensorBoard(f"{folder}/board", update_freq=1),
            keras.callbacks.CSVLogger(f"{folder}/log.csv"),
            keras.callbacks.BackupAndRestore(f"{folder}/backup"),
        ],
    ).history
    saved = keras.models.load_model(f"{folder}/best.keras").evaluate(x, y, verbose=0, return_dict=True)
    return seen, as_floats(history), as_floats(saved)


def stopped() -> Any:
    """A `fit` that a callback stops in the middle of an epoch, then one that a callback breaks off; what still runs."""
    x, y = data(160)
    model = model_of(lambda: [Rows()])

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 5:
                self.model.stop_training = True

    class Break(keras.callbacks.Callback):
        def __init__(self, fault: BaseException) -> None:
            super().__init__()
            self.fault = fault

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 5:
                raise self.fault

    rows = model.fit(x, y, batch_size=8, epochs=4, verbose=0, callbacks=[Stop()]).history["rows"]
    faults, before_and_after = [], []
    for fault in (KeyError("mine"), KeyboardInterrupt()):
        try:
            model.fit(x, y, batch_size=8, verbose=0, callbacks=[Break(fault)])
        except BaseException as raised:
            faults.append(raised is fault)
        before = int(model.optimizer.iterations.numpy())
        model.evaluate(x, y, batch_size=8, verbose=0)
        before_and_after.append([before, int(model.optimizer.iterations.numpy())])
    again = model.fit(x, y, batch_size=8, verbose=0).history["rows"]
    return rows, faults, before_and_after, again


class Pairs(keras.Model):
    """Each of its steps waits until another one runs, or ten seconds; the metric tells how many of them met one."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.add_weight(shape=(), dtype="int64", initializer="zeros", trainable=False, name="begun")
        self.met = keras.metrics.Mean(name="met")

    def call(self, x: Any) -> Any:
        return x

    def train_step(self, data: Any) -> Any:
        del data
        variable, deadline = self.begun._value, tf.timestamp() + 10.0
        own = tf.convert_to_tensor(variable.assign_add(1, read_value=True))
        pair = (own + 1) // 2 * 2
        [count] = tf.while_loop(
            lambda count: (count < pair) & (tf.timestamp() < deadline), lambda _: [variable.read_value()], [own]
        )
        self.met.update_state(tf.cast(count >= pair, "float32"))
        return {"met": self.met.result()}


def together() -> Any:
    """Over three epochs of two steps, the share of steps that ran beside another, with the callbacks of Keras."""
    x, _ = data(16)
    with strategy_of(num_servers=2).scope():
        model = Pairs()
        model.compile("sgd", "mse")
    callbacks = [keras.callbacks.TerminateOnNaN(), keras.callbacks.EarlyStopping(monitor="met", mode="max", patience=9)]
    return as_floats(model.fit(x, batch_size=8, epochs=3, verbose=2, callbacks=callbacks).history)


def failing_step() -> Any:
    """What a step that fails on a worker tells, and whether the model can train again."""
    x, y = data(64)

    class Picky(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            with tf.control_dependencies([tf.debugging.assert_less(inputs, 50.0, "too large")]):  # the line
                return tf.identity(inputs)

    with strategy_of(num_servers=2).scope():
        model = keras.Sequential([keras.Input((WIDTH,)), Picky(name="picky"), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[Rows()])
    wrong = x.copy()
    wrong[-1] = 100.0
    told = fault_of(lambda: model.fit(wrong, y, batch_size=8, shuffle=False, verbose=0))
    return told, model.fit(x, y, batch_size=8, verbose=0).history["rows"]


def errors_after_a_loss() -> Any:
    """Which errors of a script are taken for the consequence of a lost parameter server: while one runs, and then."""
    cancelled = tf.errors.CancelledError(None, None, "an earlier step has failed")
    try:
        raise KeyError("saving has failed") from cancelled
    except KeyError as fault:
        derived = fault
    errors = [cancelled, derived, KeyError("mine")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = Address("127.0.0.1", server.getsockname()[1])
        cluster = ClusterSpec({"chief": (place,), "worker": (place,), "ps": (place,)})
        while_it_runs = [bool(lost_servers(cluster, error)) for error in errors]
    return while_it_runs, [bool(lost_servers(cluster, error)) for error in errors]


def coordinator_in_an_evaluator() -> Any:
    return fault_of(lambda: tf.distribute.coordinator.ClusterCoordinator(EvaluatingStrategy()))


def mixed_precision() -> Any:
    x, y = data(160)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = model_of(lambda: [Rows()])
        history = model.fit(x, y, batch_size=8, epochs=3, verbose=0).history
    finally:
        keras.config.set_dtype_policy("float32")
    optimizer = model.optimizer
    return type(optimizer).__name__, int(optimizer.iterations.numpy()), history["rows"], history["loss"]


def single_batches() -> Any:
    x, y = data(40)
    model = model_of(lambda: ["accuracy", Rows()])
    on_train = as_floats(model.train_on_batch(x, y, return_dict=True))
    copy = local_copy(model, ["accuracy", Rows()])
    on_test, expected = (as_floats(one.test_on_batch(x, y, return_dict=True)) for one in (model, copy))
    same = np.abs(model.predict_on_batch(x) - copy.predict_on_batch(x)).max()
    return on_train, on_test, expected, float(same), int(model.optimizer.iterations.numpy())


def conditional_updates() -> Any:
    """Steps whose optimizer updates in a condition or a `tf.function`: how many there were, and whether they did."""
    x, y = data(96)

    class OwnFunction(keras.Sequential):
        @tf.function
        def train_step(self, batch: Any) -> Any:
            return super().train_step(batch)

    adam = keras.optimizers.Adam
    told = {}
    for name, optimizer_of, kind in [
        ("accumulated", lambda: adam(gradient_accumulation_steps=2), keras.Sequential),
        ("averaged", lambda: adam(use_ema=True, ema_overwrite_frequency=3), keras.Sequential),
        ("scaled", lambda: keras.optimizers.LossScaleOptimizer(adam()), keras.Sequential),
        ("function", adam, OwnFunction),
    ]:
        with strategy_of(num_servers=2).scope():
            model = kind([keras.Input((WIDTH,)), keras.layers.Dense(1, "sigmoid")])
            model.compile(optimizer_of(), "binary_crossentropy")
        before = model.get_weights()[0]
        model.fit(x, y, batch_size=8, verbose=0)
        told[name] = int(model.optimizer.iterations.numpy()), bool((model.get_weights()[0] != before).any())
    return told


def draws() -> Any:
    """What the steps of a `fit` draw from two generators, in the order of the steps; and one process, the same."""

    class Drawing(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.seeds = keras.random.SeedGenerator(5)

        def call(self, x: Any) -> Any:
            drawn = keras.random.uniform((1,), seed=self.seeds) + keras.random.uniform((1,), seed=self.seeds)
            return keras.ops.ones_like(x[:, :1]) * drawn

    x = np.zeros((24, WIDTH), "float32")
    with strategy_of(num_servers=2).scope():
        model = keras.Sequential([keras.Input((WIDTH,)), Drawing(), keras.layers.Identity()])
    alone = keras.Sequential([keras.Input((WIDTH,)), Drawing()])
    dealt = model.predict(x, batch_size=4, verbose=0)[::4, 0]
    expected = alone.predict(x, batch_size=4, verbose=0)[::4, 0]
    states = [one.layers[0].seeds.state.numpy().tolist() for one in (model, alone)]
    return dealt.tolist(), expected.tolist(), states


def several_outputs() -> Any:
    """`predict` of a dictionary with a ragged output, by executions of three steps; rows in order."""
    x = np.arange(50, dtype="float32")[:, None]

    class Model(keras.Model):
        def call(self, x: Any) -> Any:
            lengths = tf.cast(x[:, 0], tf.int64) % 3
            return {
                "twice": 2.0 * x,
                "ragged": tf.RaggedTensor.from_row_lengths(tf.range(tf.reduce_sum(lengths)), lengths),
            }

    with strategy_of(num_servers=2).scope():
        model = Model()
        model.compile(steps_per_execution=3)
    outputs = model.predict(x, batch_size=4, verbose=0)
    return outputs["twice"][:, 0].tolist(), outputs["ragged"].row_lengths().numpy().tolist()


def in_order() -> Any:
    """Largest differences of weights and history to one process, if no step may be stale; in float64, with Dropout."""
    x, y = data(96)
    keras.config.set_floatx("float64")
    try:
        strategy = strategy_of(num_servers=2, max_staleness=0)
        with strategy.scope():
            model = keras.Sequential(layers())
            model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["mae"], jit_compile=True)
        alone = keras.Sequential(layers())
        alone.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["mae"])
        alone.set_weights(model.get_weights())
        history = model.fit(x, y, batch_size=10, epochs=2, shuffle=False, verbose=0).history
        expected = [_epoch_alone(alone, x, y) for _ in range(2)]
        weights = [np.concatenate([weight.ravel() for weight in one.get_weights()]) for one in (model, alone)]
    finally:
        keras.config.set_floatx("float32")
    of_history = np.abs(np.subtract(history["loss"], expected)).max()
    return float(np.abs(weights[0] - weights[1]).max()), float(of_history), model.optimizer.iterations.numpy().tolist()


def _epoch_alone(model: Any, x: Any, y: Any) -> float:
    """Trains in this process on batches of 10; the mean loss of the rows."""
    batches = [(x[begin : begin + 10], y[begin : begin + 10]) for begin in range(0, len(x), 10)]
    losses = [model.train_on_batch(*batch, return_dict=True)["loss"] * len(batch[0]) for batch in batches]
    return float(sum(losses) / len(x))


def evaluated_within() -> Any:
    """A callback evaluates in the middle of an epoch: its rows, and what the epoch says after it, as Keras does."""
    x, y = data(80)
    model = model_of(lambda: [Rows()])
    evaluated: list[Any] = []

    class Evaluate(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 4:
                evaluated.append(self.model.evaluate(x[:24], y[:24], verbose=0, return_dict=True)["rows"])

    history = model.fit(x, y, batch_size=8, verbose=0, callbacks=[Evaluate()]).history
    return evaluated, history["rows"]


def many_kinds_of_steps() -> Any:
    """What TensorFlow warns of while the sums of several kinds of executions are added."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tensorflow").addHandler(handler)
    count = keras.Variable(0.0)
    for _ in range(6):
        ChiefMetrics([count], []).add(np.array([2.0]))
    logging.getLogger("tensorflow").removeHandler(handler)
    return told, float(count)


class Counting(keras.Model):
    """Two weights, on two servers, each of which is 1 larger after every step: what a step reads says how many updates
    it has seen. One step waits, between its reading and its update, until `go` is 1. The others wait until that one has
    read: none can end before it, however the workers' threads race.

    Args:
        slow_row: What the first row of its batch is.
    """

    def __init__(self, slow_row: int) -> None:
        super().__init__()
        self.slow_row = float(slow_row)
        self.pair = [self.add_weight(shape=(), initializer="zeros", name=name) for name in ("one", "other")]
        self.go = self.add_weight(shape=(), initializer="zeros", name="go", trainable=False)
        self.has_read = self.add_weight(shape=(), initializer="zeros", name="has_read", trainable=False)
        self.read = keras.metrics.Mean(name="read")

    def train_step(self, batch: Any) -> Any:
        with tf.GradientTape() as tape:
            read = (self.pair[0] + self.pair[1]) / 2.0
            loss = -read
        late = tf.timestamp() + 60.0

        def is_waiting(go: Any) -> Any:
            return tf.logical_and(go < 1.0, tf.timestamp() < late)

        is_slow = batch[0, 0] == self.slow_row

        def may_go() -> Any:
            go, has_read = tf.convert_to_tensor(self.go.value), tf.convert_to_tensor(self.has_read.value)
            return tf.where(is_slow, go, tf.maximum(go, has_read))

        def has_read() -> Any:
            self.has_read.assign(1.0)
            return 0.0

        with tf.control_dependencies([read]):
            go = tf.cond(is_slow, has_read, lambda: 0.0)
            [go] = tf.while_loop(is_waiting, lambda _: [may_go()], [go])
        gradients = [one * go for one in tape.gradient(loss, self.trainable_variables)]
        self.optimizer.apply(gradients, self.trainable_variables)
        self.read.update_state(read)
        return {"read": self.read.result()}


def stale(max_staleness: str, steps_per_execution: str, num_others: str) -> Any:
    """What 12 steps tell of their staleness, one of which ends when so many others have that have begun after it; and
    the mean of what they have read."""
    limit = None if max_staleness == "None" else int(max_staleness)
    with strategy_of(num_servers=2, max_staleness=limit).scope():
        model = Counting(0)  # in the first execution of an epoch
        model.compile(keras.optimizers.SGD(2.0), steps_per_execution=int(steps_per_execution))

    num_ended = 12 + int(num_others)

    def let_go() -> None:
        late = time.monotonic() + 60.0
        # Not the optimizer's steps: a step is counted there before it has ended.
        while int(version_of(model).count.numpy()) < num_ended and time.monotonic() < late:
            time.sleep(0.002)
        model.go.assign(1.0)

    helper = threading.Thread(target=let_go)

    class SecondEpoch(keras.callbacks.Callback):
        """The first one is there for the tracing, during which no other thread may look at variables."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.model.has_read.assign(0.0)
            self.model.go.assign(float(epoch == 0))
            if epoch == 1:
                helper.start()

    x = tf.data.Dataset.range(12).map(lambda row: tf.cast(row, tf.float32)[None, None])
    history = model.fit(x, epochs=2, verbose=0, callbacks=[SecondEpoch()]).history
    helper.join()
    assert [float(weight.numpy()) for weight in model.pair] == [24.0, 24.0]
    return {name: values[1] for name, values in history.items()}


def stuck(folder: str) -> Any:
    """What is said of a worker whose step does not end, and is then broken off in vain; how the model trains again."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    x, y = data(160)
    trap = Trap(Path(folder))

    class GiveUp(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            trap.has_caught_one()
            if told:
                raise KeyError

    with strategy_of(num_servers=2).scope():
        model = keras.Sequential([keras.Input((WIDTH,)), Blocking(trap), keras.layers.Dense(1, "sigmoid")])
        model.compile("sgd", "mse", metrics=[Rows()])
    os.environ["PACELINE_HANG_TIMEOUT"] = "4"  # on a busy machine a step that nothing holds up takes a second, too
    logging.getLogger("paceline").addHandler(handler)
    try:
        batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
        model.fit(batches, verbose=0)  # both workers have made their first step
        blocking = batches.take(1).map(lambda x, y: (x + ENDLESS, y))
        batches = batches.take(1).concatenate(blocking).concatenate(batches.repeat())  # an epoch waits for its first
        model.fit(batches, steps_per_epoch=10**6, verbose=0, callbacks=[GiveUp()])
    except KeyError:
        told.append("broken off")
    finally:
        del os.environ["PACELINE_HANG_TIMEOUT"]
    has_begun, has_ended = threading.Event(), threading.Event()

    class Call:  # not even the chief's end of it can be broken off
        num_steps = 1

    def call(cancellation: Any) -> None:
        has_begun.set()
        has_ended.wait(60.0)

    dispatcher_of(model).dispatch(Call(), call, lambda results: None)
    has_begun.wait(60.0)
    cancel(model)
    told.append("broken off" if has_ended.is_set() else "given up")
    has_ended.set()
    logging.getLogger("paceline").removeHandler(handler)
    rows = [model.fit(x, y, batch_size=8, verbose=0).history["rows"]]
    trap.release()
    return told, [*rows, model.fit(x, y, batch_size=8, verbose=0).history["rows"]]
