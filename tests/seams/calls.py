"""Calls of plain Keras and TensorFlow that reach what Paceline replaces: `pass_through.py` makes them with and without.

Each returns what it has computed, as nested lists of numbers and texts.
"""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.legacy.saving import legacy_h5_format
from keras.src.losses import loss as loss_module
from keras.src.saving import saving_api
from keras.src.utils import file_utils, io_utils
from tensorflow.python.saved_model import save as saved_model_module

X = np.linspace(-1.0, 1.0, 32, dtype=np.float32).reshape(8, 4)
Y = X.sum(1, keepdims=True)
CALLS: dict[str, Callable[[], Any]] = {}


def call(function: Callable[[], Any]) -> Callable[[], Any]:
    CALLS[function.__name__] = function
    return function


def _model(*middle: Any, optimizer: Any = "sgd", **options: Any) -> Any:
    model = keras.Sequential([keras.Input((4,)), *(middle or (keras.layers.Dense(3),)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **options)
    return model


def _values(model: Any) -> Any:
    return [weight.tolist() for weight in model.get_weights()]


@call
def trained() -> Any:
    model = _model(keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), metrics=["mae"])
    history = model.fit(X, Y, batch_size=4, epochs=2, validation_data=(X, Y), verbose=0).history
    return history, model.evaluate(X, Y, verbose=0), model.predict(X, verbose=0).tolist(), _values(model)


@call
def trained_by_single_batches() -> Any:
    model = _model(run_eagerly=True)
    found = model.train_on_batch(X, Y), model.test_on_batch(X, Y), model.predict_on_batch(X).tolist()
    model.reset_metrics()
    return [*map(float, found[:2]), found[2]]


@call
def trained_without_an_input() -> Any:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    return model.fit(X, Y, batch_size=4, verbose=0).history, _values(model)


class _Items(keras.utils.PyDataset):  # type: ignore[misc]  # Keras is untyped
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return X[4 * index :][:4], Y[4 * index :][:4]


@call
def trained_on_items() -> Any:
    model = _model(run_eagerly=True)
    return model.fit(_Items(workers=1), shuffle=False, verbose=0).history, _values(model)


@call
def optimized() -> Any:
    found = []
    for optimizer in (
        keras.optimizers.SGD(0.1, clipnorm=0.1, weight_decay=0.01),
        keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=1),
        keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1), initial_scale=2.0),
    ):
        model = _model(optimizer=optimizer, run_eagerly=True)
        model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
        found.append(_values(model))
    return found


@call
def followed_by_callbacks() -> Any:
    class Counts(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append([epoch, sorted(logs)])

    seen: list[Any] = []
    callbacks = [
        Counts(),
        keras.callbacks.ModelCheckpoint("best.keras", monitor="loss", save_best_only=True),
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.BackupAndRestore("backup", save_freq=1),
        keras.callbacks.TensorBoard("board", histogram_freq=1, embeddings_freq=1, profile_batch=(1, 1)),
    ]
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Embedding(4, 2), keras.layers.Flatten(), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", run_eagerly=True)
    rows = np.arange(16).reshape(8, 2) % 4
    model.fit(rows, Y, batch_size=4, epochs=2, verbose=0, shuffle=False, callbacks=callbacks, validation_data=(rows, Y))
    model.predict(rows, verbose=0, callbacks=[Counts()])
    return seen, _values(model), Path("log.csv").read_text(), _values(keras.saving.load_model("best.keras"))


@call
def saved() -> Any:
    model = _model()
    model.save("model.keras")
    model.save("model.h5")
    model.save_weights("model.weights.h5")
    model.load_weights("model.weights.h5")
    keras.src.saving.saving_lib.save_weights_only(model, "only.weights.h5")
    model.export("exported", verbose=False)
    saved_model_module.save(tf.Module(), "module")
    legacy_h5_format.save_model_to_hdf5(model, "legacy.h5")
    loaded = tf.saved_model.load("exported")
    return [_values(saving_api.load_model(f"model.{kind}", compile=False)) for kind in ("keras", "h5")], loaded.serve(
        X
    ).numpy().tolist()


@call
def checkpointed() -> Any:
    variable, weight = tf.Variable([1.0, 2.0]), keras.Variable([3.0])
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(one=variable, other=weight), "checkpoints", max_to_keep=1)
    manager.save()
    manager.save()
    variable.assign([0.0, 0.0])
    weight.assign([0.0])
    manager.restore_or_initialize()
    return (
        variable.numpy().tolist(),
        weight.numpy().tolist(),
        sorted(path.name for path in Path("checkpoints").iterdir()),
    )


@call
def downloaded() -> Any:
    Path("origin.txt").write_text("rows")
    with contextlib.redirect_stdout(io.StringIO()):  # a progress bar
        path = file_utils.get_file("copy.txt", Path("origin.txt").absolute().as_uri(), cache_dir=".")
    with file_utils.File("written.txt", "w") as file:
        file.write("rows")
    return Path(path).read_text(), Path("written.txt").read_text()


@call
def printed() -> Any:
    said: list[str] = []
    _model().summary(print_fn=lambda text, **_: said.append(text))
    io_utils.print_msg("told")
    return said


@call
def datasets() -> Any:
    def two(_: Any) -> Any:
        return tf.data.Dataset.range(2)

    def next_one(x: Any) -> Any:
        return x + 1

    numbers = tf.data.Dataset.range(12)
    numbers.save("rows")
    stages = [
        numbers.shuffle(5, seed=3),
        numbers.cache("rows.cache"),
        numbers.interleave(two),
        numbers.interleave(two, cycle_length=2, num_parallel_calls=2),
        numbers.interleave(two, cycle_length=2, num_parallel_calls=2, deterministic=True),
        numbers.map(next_one, num_parallel_calls=2, deterministic=True),
        numbers.batch(3, num_parallel_calls=2, deterministic=True),
        tf.data.Dataset.load("rows"),
    ]
    return [[np.asarray(one).tolist() for one in stage.as_numpy_iterator()] for stage in stages]


@call
def dataset_operations() -> Any:
    """As TensorFlow's own classes call them."""
    example = tf.train.Example(
        features=tf.train.Features(feature={"a": tf.train.Feature(int64_list=tf.train.Int64List(value=[7]))})
    )
    parsed = (
        tf.data.Dataset.from_tensors(example.SerializeToString())
        .batch(1)
        .apply(tf.data.experimental.parse_example_dataset({"a": tf.io.FixedLenFeature([], tf.int64)}))
    )
    legacy = tf.data.Dataset.range(3).apply(
        tf.data.experimental.parallel_interleave(tf.data.Dataset.from_tensors, cycle_length=2)
    )
    return [one["a"].tolist() for one in parsed.as_numpy_iterator()], [int(one) for one in legacy.as_numpy_iterator()]


@call
def drawn() -> Any:
    shape = [3]
    return [
        np.asarray(one).tolist()
        for one in (
            tf.random.normal(shape),
            tf.random.uniform(shape),
            tf.random.uniform(shape, maxval=9, dtype=tf.int32),
            tf.random.truncated_normal(shape, seed=2),
            tf.function(lambda: tf.random.normal(shape))(),
        )
    ]


@call
def drawn_by_keras() -> Any:
    random, shape = keras.random, (3,)
    return [
        np.asarray(one).tolist()
        for one in (
            random.uniform(shape),
            random.normal(shape, seed=1),
            random.randint(shape, 0, 9),
            random.dropout(keras.ops.ones(shape), 0.5),
            random.truncated_normal(shape),
            random.categorical(keras.ops.ones((1, 4)), 3),
            random.gamma(shape, 1.0),
            random.beta(shape, 1.0, 2.0),
            random.binomial(shape, 5.0, 0.5),
            random.uniform(shape, seed=keras.random.SeedGenerator(4)),
        )
    ]


@call
def differentiated() -> Any:
    @tf.custom_gradient
    def twice(x: Any) -> Any:
        return 2.0 * x, lambda upstream: 3.0 * upstream

    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = twice(x) ** 2
    eager = float(tape.gradient(y, x))

    @tf.function
    def in_graph(x: Any) -> Any:
        return tf.gradients(twice(x) ** 2, [x])[0]

    @tf.RegisterGradient(f"OfCalls{len(_registered)}")
    def registered(operation: Any, upstream: Any) -> Any:
        return upstream

    _registered.append(registered)
    return eager, float(in_graph(x))


_registered: list[Any] = []


@call
def losses() -> Any:
    model = _model(keras.layers.ActivityRegularization(0.1), run_eagerly=True)
    weights = np.linspace(0.0, 1.0, 8, dtype=np.float32)
    trained = model.fit(X, Y, sample_weight=weights, batch_size=4, shuffle=False, verbose=0).history
    x = keras.ops.convert_to_tensor(Y)
    x._keras_mask = keras.ops.convert_to_tensor(np.arange(8) % 2 == 0)
    masked = float(keras.losses.MeanSquaredError()(Y * 2, x))
    mean = keras.metrics.Mean()
    mean.update_state([1.0, 2.0], sample_weight=[1.0, 3.0])
    reduced = float(loss_module.reduce_values(keras.ops.convert_to_tensor(Y), reduction="sum"))
    return trained, masked, float(mean.result()), reduced


@call
def assigned() -> Any:
    variable = keras.Variable([1.0, 2.0])
    variable.assign([3.0, 4.0])
    variable.assign_add([1.0, 1.0])
    variable.assign_sub([0.5, 0.5])
    layer = keras.layers.Dense(1)
    layer.build((None, 2))
    layer.set_weights([np.ones((2, 1)), np.zeros(1)])
    looked = keras.ops.take(keras.ops.ones((4, 2)), [1, 3], axis=0)
    return [
        variable.numpy().tolist(),
        np.asarray(variable).tolist(),
        [weight.tolist() for weight in layer.get_weights()],
        [len(layer.weights), len(layer.trainable_weights), len(layer.non_trainable_weights)],
        looked.numpy().tolist(),
    ]
