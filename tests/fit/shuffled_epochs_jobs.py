"""Trainings on data whose shuffle buffers are filled anew in each epoch: one function a case, in plain Keras, too."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

ROWS, BATCH = 203, 17
CASES: dict[str, Callable[[], Any]] = {}


class Broken(Exception):
    pass


def run_case(name: str) -> Any:
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(3)
    return CASES[name]()


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def _table(rows: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, 8)), generator.integers(0, 4, rows)


def _features(row: Any) -> Any:
    numbers = tf.cast(row, tf.float64) * tf.range(1, 9, dtype=tf.float64)
    return tf.math.floormod(numbers, 11.0) / 11.0, row % 4


def _data(*, known: bool = True) -> Any:
    """Two levels of shuffles: the lower one draws when the upper one begins to be filled."""
    files = tf.data.Dataset.range(7).shuffle(7)
    rows = files.interleave(lambda file: tf.data.Dataset.range(29).map(lambda row: row + 29 * file))
    rows = rows.apply(tf.data.experimental.assert_cardinality(ROWS)) if known else rows
    return rows.shuffle(60).map(_features, num_parallel_calls=2).batch(BATCH)


def _held_back() -> Any:
    return tf.data.Dataset.from_tensor_slices(_table(40, seed=1)).shuffle(20).batch(BATCH)


def _model(**options: Any) -> Any:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, **options)
    return model


def _result(model: Any, *fits: Any) -> Any:
    histories = [fit.history for fit in fits]
    return {"histories": histories, "weights": [weight.ravel().tolist() for weight in model.get_weights()]}


@case
def several_epochs_with_validation() -> Any:
    model = _model()
    return _result(model, model.fit(_data(), epochs=4, validation_data=_held_back(), verbose=0))


@case
def of_unknown_length() -> Any:
    model = _model()
    return _result(model, model.fit(_data(known=False), epochs=4, validation_data=_held_back(), verbose=0))


@case
def several_steps_per_execution() -> Any:
    model = _model(steps_per_execution=3)
    return _result(model, model.fit(_data().take(12), epochs=3, verbose=0))


@case
def stopped_early_and_fitted_again() -> Any:
    model, data = _model(), _data()
    stop = keras.callbacks.EarlyStopping("val_loss", patience=0, mode="max")
    options = {"validation_data": _held_back(), "verbose": 0}
    first = model.fit(data, epochs=5, callbacks=[stop], **options)
    return _result(model, first, model.fit(data, epochs=2, **options))


class _Acts(keras.callbacks.Callback):
    """Does something once, behind a step of the second epoch."""

    def __init__(self, at: int, act: Callable[[Any], None]) -> None:
        super().__init__()
        self.at, self.act, self.epoch = at, act, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.epoch == 1 and batch == self.at:
            self.act(self.model)


@case
def stopped_in_the_last_steps_and_fitted_again() -> Any:
    model, data = _model(), _data()

    def stop(model: Any) -> None:
        model.stop_training = True

    first = model.fit(data, epochs=4, callbacks=[_Acts(10, stop)], verbose=0)
    return _result(model, first, model.fit(data, epochs=2, verbose=0))


@case
def broken_off_and_fitted_again() -> Any:
    model, data = _model(), _data()

    def break_off(model: Any) -> None:
        raise Broken

    try:
        model.fit(data, epochs=4, callbacks=[_Acts(10, break_off)], verbose=0)
    except Broken:
        return _result(model, model.fit(data, epochs=2, verbose=0))
    raise AssertionError


@case
def a_callback_reads_the_same_data() -> Any:
    """Its iterator draws what the next epoch would have drawn."""
    model, data, seen = _model(), _data(), []

    class Looks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                seen.append(next(iter(data))[1].numpy().tolist())

    fit = model.fit(data, epochs=4, callbacks=[Looks()], validation_data=_held_back(), verbose=0)
    return {**_result(model, fit), "seen": seen}


@case
def a_validation_draws_from_the_same_shuffle() -> Any:
    model = _model()
    rows = tf.data.Dataset.from_tensor_slices(_table(ROWS)).shuffle(50)
    data, held_back = rows.skip(40).batch(BATCH), rows.take(40).batch(BATCH)
    return _result(model, model.fit(data, epochs=3, validation_data=held_back, verbose=0))
