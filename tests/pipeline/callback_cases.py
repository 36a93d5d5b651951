"""Callbacks and files of weights of a model in two stages, beside plain Keras in the same processes."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import callbacks

import paceline
from paceline.comm.world import current_world

ROWS = np.random.default_rng(0).normal(size=(40, 8))
TARGETS = ROWS[:, :1] ** 2


def _build() -> Any:
    keras.utils.set_random_seed(3)
    dense = [keras.layers.Dense(6, "tanh"), keras.layers.Dropout(0.2), keras.layers.Dense(5, "tanh")]
    return keras.Sequential([keras.Input((8,)), *dense, keras.layers.Dense(1)])


def _fitted(scope: Any, given: Sequence[Any] = (), epochs: int = 4) -> Any:
    with scope:
        model = _build()
        model.compile(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.8), "mse", metrics=["mae"])
    options = {"batch_size": 16, "epochs": epochs, "shuffle": False, "verbose": 0}
    model.fit(ROWS, TARGETS, validation_data=(ROWS, TARGETS), callbacks=list(given), **options)
    return model


def _check(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def _same_history(one: Any, other: Any) -> None:
    assert one.history.history.keys() == other.history.history.keys()
    for name, values in other.history.history.items():
        _check(one.history.history[name], values)


def _predicted(model: Any) -> Any:
    return model.predict(ROWS, verbose=0)


def early_stopping(strategy: Any, folder: Path) -> None:
    """No later epoch is better than the first one by so much, so its weights come back."""
    models = []
    for scope in (strategy.scope(), contextlib.nullcontext()):
        stops = callbacks.EarlyStopping("val_loss", min_delta=10.0, restore_best_weights=True)
        models.append(_fitted(scope, [stops]))
    _same_history(*models)
    _check(_predicted(models[0]), _predicted(models[1]))
    assert len(models[0].history.epoch) == 2
    assert models[0].count_params() == models[1].count_params()
    models[0].summary()


def all_others(strategy: Any, folder: Path) -> None:
    """What they write on one process and on two stages is the same."""
    models, names = [], ("stages", f"plain-{paceline.rank()}")
    for name, scope in zip(names, (strategy.scope(), contextlib.nullcontext()), strict=True):
        own = folder / name
        own.mkdir(exist_ok=True)
        best = {"monitor": "val_loss", "save_best_only": True}
        given = [
            callbacks.ModelCheckpoint(str(own / "best.weights.h5"), save_weights_only=True, **best),
            callbacks.ModelCheckpoint(str(own / "best.keras"), **best),
            callbacks.BackupAndRestore(str(own / "backup")),
            callbacks.ReduceLROnPlateau("val_loss", patience=0, min_delta=1.0, factor=0.5),
            callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
            callbacks.SwapEMAWeights(swap_on_epoch=True),
            callbacks.CSVLogger(str(own / "log.csv")),
            callbacks.TerminateOnNaN(),
            callbacks.TensorBoard(str(own / "board"), histogram_freq=1, embeddings_freq=2),
        ]
        models.append(_fitted(scope, given))
    _same_history(*models)
    whole = [keras.models.load_model(folder / name / "best.keras") for name in names]
    _check(*map(_predicted, whole))
    for model, name in zip(models, names, strict=True):
        model.load_weights(folder / name / "best.weights.h5")
    _check(*map(_predicted, models))
    logs = [np.loadtxt(folder / name / "log.csv", delimiter=",", skiprows=1) for name in names]
    _check(*logs)
    boards = [folder / name / "board" for name in names]
    files, of_plain = (sorted(path.name for path in board.iterdir()) for board in boards)
    assert files == of_plain
    assert {"train", "validation"} < {*files}
    assert [len(list(board.glob("**/keras_embedding.ckpt-*"))) for board in boards] == [2, 2]
    staged, plain = map(_histograms, boards)
    assert len(plain) == 4 * len(models[1].weights)
    for one, other in zip(staged, plain, strict=True):
        _check(one, other)


def _histograms(board: Path) -> list[Any]:
    """In the order in which they were written."""
    [path] = (board / "train").glob("events.*")
    events = tf.compat.v1.train.summary_iterator(str(path))
    values = [value for event in events for value in event.summary.value]
    return [tf.make_ndarray(value.tensor) for value in values if value.tag.endswith("/histogram")]


def files_of_weights(strategy: Any, folder: Path) -> None:
    """From stages to one process and back, before and after a `fit`; slots, too, where there is an optimizer."""
    staged, plain = _fitted(strategy.scope()), _fitted(contextlib.nullcontext(), epochs=1)
    staged.save_weights(folder / "staged.weights.h5")
    loaded = _build()
    loaded.load_weights(folder / "staged.weights.h5")
    _check(_predicted(loaded), _predicted(staged))
    plain.save_weights(folder / "plain.weights.h5")
    with strategy.scope():
        fresh = _build()
    for model in (staged, fresh):
        model.load_weights(folder / "plain.weights.h5")
        _check(_predicted(model), _predicted(plain))
    histories = []
    for model in (staged, plain):
        model.load_weights(folder / "staged.weights.h5")
        model.get_layer(index=1).seed_generator.state.assign([3, 0])  # a file has none
        histories.append(model.fit(ROWS, TARGETS, batch_size=16, shuffle=False, verbose=0).history["loss"])
    _check(*histories)


CASES: dict[str, Callable[[Any, Path], None]] = {
    case.__name__: case for case in (early_stopping, all_others, files_of_weights)
}


def run_case(name: str, folder: str) -> None:
    """Runs one of `CASES` on every rank."""
    keras.config.set_floatx("float64")
    with current_world().training_alone():  # as `--allow-independent`: each rank trains a plain model, too
        CASES[name](paceline.PipelineStrategy(2, micro_batches=4), Path(folder))
