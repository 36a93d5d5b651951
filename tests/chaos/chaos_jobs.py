"""The script that is struck: ``paceline run … chaos_jobs.py JOB FOLDER`` trains a small job and tells every bit of it.

Each row carries its number, which never reaches the model. Each rank notes the numbers of the rows that its steps take,
at once, so that nothing of it dies with the process. Plain Keras: nothing in here knows that it will be struck.
Stages of a pipeline run no step of a user's, so that one job notes no rows.
"""

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

ROWS, BATCH, EPOCHS, FEATURES = 60, 8, 5, 6
STEPS_PER_EPOCH = -(-ROWS // BATCH)
STEPS = STEPS_PER_EPOCH * EPOCHS

RANK = int(os.environ["PACELINE_RANK"])
GENERATION = int(os.environ["PACELINE_GENERATION"])

layers = keras.layers


class WithoutNumber(layers.Layer):
    """Takes the number of the row away."""

    def call(self, rows: Any) -> Any:
        return rows[:, 1:]

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] - 1)


class NotesRows(keras.Sequential):
    """A model that notes which rows it is trained on."""

    noted: Callable[[Any, Any], None]

    def train_step(self, data: Any) -> Any:
        steps = self.optimizer._iterations.value  # without the underscore it counts updates where gradients accumulate
        tf.numpy_function(self.noted, [steps, data[0][:, 0]], [], stateful=True)
        return super().train_step(data)


def rows(seed: int = 3) -> tuple[Any, Any]:
    features = np.random.default_rng(seed).normal(size=(ROWS, FEATURES)).astype("float32")
    labels = (features.sum(axis=1) > 0).astype("int32")
    return np.concatenate([np.arange(ROWS, dtype="float32")[:, None], features], axis=1), labels


def shuffled() -> Any:
    return tf.data.Dataset.from_tensor_slices(rows()).shuffle(ROWS).batch(BATCH).prefetch(2)


def model_of(*hidden: Any, optimizer: Any, kind: type[keras.Sequential] = NotesRows) -> Any:
    model = kind([keras.Input((FEATURES + 1,)), WithoutNumber(), layers.Dense(8, "relu"), *hidden, layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    return model


def momentum() -> tuple[Any, Any, list[Any]]:
    return model_of(optimizer=keras.optimizers.SGD(0.05, momentum=0.9)), rows(), []


def adam_schedule() -> tuple[Any, Any, list[Any]]:
    rate = keras.optimizers.schedules.CosineDecay(0.02, STEPS)
    return model_of(optimizer=keras.optimizers.Adam(rate)), shuffled(), []


def dropout() -> tuple[Any, Any, list[Any]]:
    return model_of(layers.Dropout(0.3), optimizer=keras.optimizers.Adam(0.01)), shuffled(), []


def batch_normalization() -> tuple[Any, Any, list[Any]]:
    hidden = (layers.BatchNormalization(), layers.Dropout(0.2))
    return model_of(*hidden, optimizer=keras.optimizers.SGD(0.05, momentum=0.5)), shuffled(), []


def early_stopping() -> tuple[Any, Any, list[Any]]:
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=0.08, restore_best_weights=True)
    plateau = keras.callbacks.ReduceLROnPlateau("val_accuracy", factor=0.5, patience=1)
    return model_of(optimizer=keras.optimizers.SGD(0.1, momentum=0.5)), shuffled(), [stopping, plateau]


def accumulation() -> tuple[Any, Any, list[Any]]:
    return model_of(optimizer=keras.optimizers.Adam(0.01, gradient_accumulation_steps=3)), shuffled(), []


def pipeline() -> tuple[Any, Any, list[Any]]:
    """Two stages, with replicas where there are workers enough; as many stages as workers where these are odd."""
    import paceline

    stages = paceline.world_size() if paceline.world_size() % 2 else 2
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True)
    plateau = keras.callbacks.ReduceLROnPlateau("val_accuracy", factor=0.5, patience=1)
    with paceline.PipelineStrategy(stages, micro_batches=2).scope():
        hidden = (layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(8, "tanh"))
        optimizer = keras.optimizers.Adam(0.02, global_clipnorm=0.5)
        return model_of(*hidden, optimizer=optimizer, kind=keras.Sequential), shuffled(), [stopping, plateau]


def all_callbacks() -> tuple[Any, Any, list[Any]]:
    """For the small part of it in every check; so the next."""
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True)
    plateau = keras.callbacks.ReduceLROnPlateau("val_accuracy", factor=0.5, patience=1)
    return model_of(optimizer=keras.optimizers.SGD(0.05, momentum=0.9)), rows(), [stopping, plateau]


def all_layers() -> tuple[Any, Any, list[Any]]:
    hidden = (layers.BatchNormalization(), layers.Dropout(0.3))
    rate = keras.optimizers.schedules.CosineDecay(0.02, STEPS)
    return model_of(*hidden, optimizer=keras.optimizers.Adam(rate, gradient_accumulation_steps=3)), shuffled(), []


JOBS = {
    job.__name__: job
    for job in (
        momentum,
        adam_schedule,
        dropout,
        batch_normalization,
        early_stopping,
        accumulation,
        pipeline,
        all_callbacks,
        all_layers,
    )
}


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    model, data, callbacks = JOBS[name]()
    notes = os.open(folder / f"rows-{RANK}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def noted(step: Any, numbers: Any) -> None:
        line = {"life": [os.environ["CHAOS_LIFE"], GENERATION], "step": int(step), "at": time.time()}
        os.write(notes, json.dumps({**line, "rows": [int(number) for number in numbers]}).encode() + b"\n")

    model.noted = noted
    features, labels = data if isinstance(data, tuple) else (data, None)
    held_back = tuple(array[:24] for array in rows(seed=4))
    model.fit(
        features,
        labels,
        batch_size=None if labels is None else BATCH,
        epochs=EPOCHS,
        verbose=0,
        validation_data=held_back,
        validation_batch_size=BATCH,
        callbacks=callbacks,
    )
    variables = [*model.variables, *model.optimizer.variables]
    bits = b""
    for variable in variables:
        with contextlib.suppress(RuntimeError):  # another stage's
            bits += np.ascontiguousarray(variable.numpy()).tobytes()
    history = {key: [repr(float(value)) for value in values] for key, values in model.history.history.items()}
    told = {"weights": hashlib.sha256(bits).hexdigest()[:16], "history": history, "epochs": model.history.epoch}
    (folder / f"result-{RANK}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
