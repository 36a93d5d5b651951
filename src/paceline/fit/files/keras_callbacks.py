"""Keras's own callbacks, on every rank of a world: each decides the same, and each file is written once.

Checkpoints: ranks take turns (`Claims.alone`), because Keras makes directories and copies files step by step. None of
it is a collective: a callback that a script gives to the chief alone waits for nobody.

`CSVLogger` and `TensorBoard` run on every rank, because a subclass may do there what all ranks do together (predict,
draw, log the picture). On followers their files are the null device and a writer that drops all: whatever a script
calls on them works and leaves nothing. Callbacks that are for the chief only are not called on followers.
"""

import json
import os
from collections.abc import Callable
from typing import Any

import keras

from paceline.comm.world import current_world
from paceline.fit.chief_only import is_chief_only
from paceline.fit.engine import engine_of
from paceline.fit.files.claims import shared_claims
from paceline.fit.files.model_files import full_path, is_shared, moment_of
from paceline.fit.followers_writer import FollowersWriter

Function = Callable[..., Any]


def decided_alike(keras_save: Function) -> Function:
    """`ModelCheckpoint._save_model`: `best` advances on every rank, and one rank writes."""

    def _save_model(self: Any, epoch: int, batch: int | None, logs: Any) -> Any:
        if not is_shared(self.model):
            return keras_save(self, epoch=epoch, batch=batch, logs=logs)
        name = f"ModelCheckpoint {full_path(self.filepath)}"
        if batch is not None:
            logs = _firsts_numbers(name, f"{moment_of(self.model)}.{epoch}.{batch}", logs)
        verbose, world = self.verbose, current_world()
        if world.launched and not world.is_chief:  # one terminal, one voice
            self.verbose = 0
        try:
            with shared_claims().alone(name):
                return keras_save(self, epoch=epoch, batch=batch, logs=logs)
        finally:
            self.verbose = verbose

    return _save_model


def _firsts_numbers(name: str, moment: str, logs: Any) -> Any:
    """`logs` with the numbers of the rank that came first: names and decisions must not differ between ranks."""
    numbers = {key: float(value) for key, value in (logs or {}).items() if _is_number(value)}
    agreed = json.loads(shared_claims().agreed(name, moment, json.dumps(numbers)))
    return {**(logs or {}), **agreed}


def _is_number(value: Any) -> bool:
    return getattr(value, "shape", ()) == () and hasattr(value, "__float__")


def is_follower(model: Any) -> bool:
    """Whether this rank trains `model` together with a chief that is another rank."""
    if model is None:
        return not current_world().is_chief
    engine = engine_of(model)
    return engine.group is not None and engine.world is not None and not engine.world.is_chief


def is_left_out(callback: Any) -> bool:
    """Whether followers do not call it. Keras's own `TensorBoard` tells them which summaries a step has."""
    return is_chief_only(callback) and type(callback) is not keras.callbacks.TensorBoard


def to_null_device(keras_begin: Function) -> Function:
    """`CSVLogger.on_train_begin`, which opens the file."""

    def on_train_begin(self: Any, logs: Any = None) -> Any:
        if not is_follower(self.model):
            return keras_begin(self, logs)
        filename, self.filename = self.filename, os.devnull
        try:
            return keras_begin(self, logs)
        finally:
            self.filename = filename

    return on_train_begin


def to_no_summary(keras_writer: property) -> property:
    """`TensorBoard._train_writer` or `._val_writer`."""

    def writer(self: Any) -> Any:
        return FollowersWriter() if is_follower(self._model) else keras_writer.fget(self)  # type: ignore[misc]

    return property(writer)


def on_chief(keras_method: Function) -> Function:
    """A method of `TensorBoard` that writes a file past the summary writers."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if is_follower(self._model) else keras_method(self, *args, **kwargs)

    return method


def embeddings_saved(keras_method: Function) -> Function:
    """`TensorBoard._log_embeddings`, which saves the model's weights: all ranks of a pipeline do."""
    of_chief = on_chief(keras_method)

    def _log_embeddings(self: Any, epoch: int) -> Any:
        return (of_chief if not engine_of(self._model).saves_together else keras_method)(self, epoch)

    return _log_embeddings


def weights_logged(keras_log: Function) -> Function:
    """`TensorBoard._log_weights`, which reads each weight."""

    def _log_weights(self: Any, epoch: int) -> Any:
        return engine_of(self._model).with_all_values(self._model, lambda: keras_log(self, epoch))

    return _log_weights
