"""Cases: Keras's callbacks that write files, on every rank, and callbacks for the chief only."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from files.ingredients import (
    NUM_WORKERS,
    RANK,
    ROWS,
    TARGETS,
    case,
    error_of,
    files_below,
    fit,
    flat,
    model_and_compile,
    shared_model,
)

if NUM_WORKERS > 1:
    import paceline


def _checkpoint(path: Path, **options: Any) -> keras.callbacks.ModelCheckpoint:
    return keras.callbacks.ModelCheckpoint(str(path), **options)


@case
def model_checkpoint_with_every_option(directory: Path) -> Any:
    model = shared_model()
    callbacks = {
        "each": _checkpoint(directory / "each" / "{epoch:02d}-{val_loss:.2f}.keras"),
        "best": _checkpoint(directory / "best.keras", save_best_only=True, monitor="val_mae", mode="min"),
        "never": _checkpoint(
            directory / "never.keras", save_best_only=True, monitor="loss", initial_value_threshold=1e-9
        ),
        "worst": _checkpoint(directory / "worst.weights.h5", save_best_only=True, mode="max", save_weights_only=True),
        "batches": _checkpoint(directory / "batches" / "{epoch}-{batch}.keras", save_freq=3),
        "best_batches": _checkpoint(
            directory / "{epoch}-{batch}-{loss:.4f}.weights.h5",
            save_freq=4,
            save_best_only=True,
            save_weights_only=True,
            monitor="loss",
        ),
    }
    history = fit(model, 3, validation_data=(ROWS, TARGETS), callbacks=list(callbacks.values()))
    last = keras.models.load_model(max((directory / "each").iterdir()))
    return {
        "best": {name: float(one.best) for name, one in callbacks.items() if one.best is not None},
        "files": files_below(directory),
        "is_whole": np.array_equal(flat(last), flat(model)),
        "val_mae": history["val_mae"],
    }


@case
def model_checkpoint_on_the_chief_alone(directory: Path) -> Any:
    model = shared_model()
    fit(model, 2, callbacks=[_checkpoint(directory / "{epoch}.keras")] if RANK == 0 else [])
    fit(model, callbacks=[_checkpoint(directory / "all.keras")])
    return files_below(directory)


@case
def model_checkpoint_says_what_is_wrong_on_every_rank(directory: Path) -> Any:
    (directory / "taken.keras").mkdir(exist_ok=True)
    return error_of(lambda: fit(shared_model(), callbacks=[_checkpoint(directory / "taken.keras")]))


class _Stop(keras.callbacks.Callback):
    """Ends a run in the middle of an epoch, as a fault would."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self._at = epoch
        self.epochs: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 2 and self.epochs[-1] == self._at:
            raise InterruptedError("stopped")


@case
def backup_and_restore_goes_on_where_it_was(directory: Path) -> Any:
    seen = []
    for options in ({}, {"double_checkpoint": True, "save_freq": 2}, {"delete_checkpoint": False}):
        backup = str(directory / f"backup_{len(seen)}")
        stop = _Stop(2)
        first = keras.callbacks.BackupAndRestore(backup, **options)
        error = error_of(lambda stop=stop, first=first: fit(shared_model(), 4, callbacks=[first, stop]))
        again, resumed = _Stop(99), model_and_compile()
        fit(resumed, 4, callbacks=[keras.callbacks.BackupAndRestore(backup, **options), again])
        seen.append(
            {
                "error": error,
                "epochs": again.epochs,
                "weights": float(np.abs(flat(resumed)).sum()),
                "left": files_below(directory / backup),
            }
        )
    return seen


@case
def csv_logger_has_one_header_and_one_row_an_epoch(directory: Path) -> Any:
    model = shared_model()

    class Flushing(keras.callbacks.CSVLogger):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_end(epoch, {**(logs or {}), "predicted": float(self.model.predict(ROWS, verbose=0).sum())})
            self.csv_file.flush()

    logger = keras.callbacks.CSVLogger(directory / "log.csv")
    fit(model, 3, callbacks=[logger, Flushing(directory / "own.csv")])
    fit(model, 2, callbacks=[keras.callbacks.CSVLogger(directory / "log.csv", append=True)])
    return logger.filename == str(directory / "log.csv"), logger.csv_file.closed


@case
def tensorboard_writes_one_set_of_events(directory: Path) -> Any:
    class Pictures(keras.callbacks.TensorBoard):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            predicted = self.model.predict(ROWS, verbose=0)
            with self._val_writer.as_default():
                tf.summary.histogram("predicted", predicted, step=epoch)
            super().on_epoch_end(epoch, logs)

    model = shared_model()
    everything = {
        "histogram_freq": 1,
        "write_graph": True,
        "write_images": True,
        "write_steps_per_second": True,
        "update_freq": "batch",
        "profile_batch": (2, 3),
    }
    fit(model, 2, callbacks=[Pictures(directory / "all", **everything)], validation_data=(ROWS, TARGETS))
    fit(model, 2, callbacks=[keras.callbacks.TensorBoard(directory / "plain")])
    model = keras.Sequential([keras.Input((4,)), keras.layers.Embedding(5, 2), keras.layers.Flatten()])
    model.add(keras.layers.Dense(1))
    model.compile("sgd", "mse")
    tensorboard = keras.callbacks.TensorBoard(directory / "embeddings", embeddings_freq=1)
    model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, verbose=0, callbacks=[tensorboard])
    return tensorboard.model is model


@case
def callbacks_for_the_chief_only(directory: Path) -> Any:
    if NUM_WORKERS == 1:
        return None
    heard: list[str] = []

    @paceline.chief_only
    class Declared(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            heard.append("class")

        def on_test_begin(self, logs: Any = None) -> None:
            heard.append("test")

    class Derived(Declared):
        pass

    def lambda_callback(word: str) -> keras.callbacks.Callback:
        return keras.callbacks.LambdaCallback(on_train_end=lambda logs: heard.append(word))

    model = shared_model()
    declared = Declared()
    once = paceline.chief_only(lambda_callback("instance"))
    fit(model, callbacks=[declared, [Derived(), once], lambda_callback("everywhere")])
    model.evaluate(ROWS, TARGETS, verbose=0, callbacks=[declared])
    fit(model, callbacks=keras.callbacks.CallbackList([once], add_history=True, model=model))
    return heard, declared.model is model, declared.params.get("epochs")
