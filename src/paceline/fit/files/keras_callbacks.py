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
from paceline.fit.files.claims import shared_claims
from paceline.fit.files.model_files import full_path, is_shared, moment_of, written_once
from paceline.fit.followers_writer import FollowersWriter
from paceline.fit.strategies import paceline_strategy_of, pipeline_strategy_of

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


def backed_up_once(keras_save: Function) -> Function:
    """`BackupAndRestore._save_model`: one rank writes the weights and what belongs to them, the others wait for it.

    All ranks of a pipeline save the weights together; what belongs to them is the chief's to write.
    """

    def _save_model(self: Any) -> Any:
        if pipeline_strategy_of(self.model) is not None and _is_follower(self.model):
            return self.model.save_weights(self._weights_path, overwrite=True)
        with written_once(self.model, _name_of(self)) as is_ours:
            return keras_save(self) if is_ours else None

    return _save_model


def restored_in_turn(keras_restore: Function) -> Function:
    """`BackupAndRestore.on_train_begin`: every rank loads the same state, one after the other."""

    def on_train_begin(self: Any, logs: Any = None) -> Any:
        if not is_shared(self.model):
            return keras_restore(self, logs)
        optimizer = self.model.optimizer
        if self.model.built and optimizer is not None and not optimizer.built:
            with self.model.distribute_strategy.scope():  # all ranks together, so not in turn
                optimizer.build(self.model.trainable_variables)
        with shared_claims().alone(_name_of(self)):
            return keras_restore(self, logs)

    return on_train_begin


def removed_in_turn(keras_end: Function) -> Function:
    """`BackupAndRestore.on_train_end`: the first rank, or a pipeline's chief, removes the directory."""

    def on_train_end(self: Any, logs: Any = None) -> Any:
        if pipeline_strategy_of(self.model) is not None and _is_follower(self.model):
            return None
        if not is_shared(self.model):
            return keras_end(self, logs)
        with shared_claims().alone(_name_of(self)):
            return keras_end(self, logs)

    return on_train_end


def _name_of(backup: Any) -> str:
    return f"BackupAndRestore {full_path(backup.backup_dir)}"


def _is_follower(model: Any) -> bool:
    """Whether this rank trains `model` together with a chief that is another rank."""
    if model is None:
        return not current_world().is_chief
    strategy = paceline_strategy_of(model) if hasattr(model, "distribute_strategy") else None
    return strategy is not None and not strategy.world.is_chief


def _is_left_out(callback: Any) -> bool:
    """Whether followers do not call it. Keras's own `TensorBoard` tells them which summaries a step has."""
    return is_chief_only(callback) and type(callback) is not keras.callbacks.TensorBoard


def without_chief_only(keras_init: Function) -> Function:
    """`CallbackList.__init__`, which on followers leaves out what is for the chief only."""

    def __init__(  # noqa: N807
        self: Any,
        callbacks: Any = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Any = None,
        **params: Any,
    ) -> None:
        if callbacks:
            callbacks = keras.tree.flatten(callbacks)  # Keras takes a single one for one that may run in a thread
        if callbacks and _is_follower(model):
            flat = callbacks
            callbacks = [callback for callback in flat if not _is_left_out(callback)]
            for callback in flat:
                if _is_left_out(callback):
                    # The script may ask it for its model, which every callback has.
                    keras.callbacks.Callback.set_model(callback, model)
                    keras.callbacks.Callback.set_params(callback, params)
        keras_init(self, callbacks, add_history, add_progbar, model, **params)

    return __init__


def to_null_device(keras_begin: Function) -> Function:
    """`CSVLogger.on_train_begin`, which opens the file."""

    def on_train_begin(self: Any, logs: Any = None) -> Any:
        if not _is_follower(self.model):
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
        return FollowersWriter() if _is_follower(self._model) else keras_writer.fget(self)  # type: ignore[misc]

    return property(writer)


def on_chief(keras_method: Function) -> Function:
    """A method of `TensorBoard` that writes a file past the summary writers."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if _is_follower(self._model) else keras_method(self, *args, **kwargs)

    return method


def embeddings_saved(keras_method: Function) -> Function:
    """`TensorBoard._log_embeddings`, which saves the model's weights: all ranks of a pipeline do."""
    of_chief = on_chief(keras_method)

    def _log_embeddings(self: Any, epoch: int) -> Any:
        return (of_chief if pipeline_strategy_of(self._model) is None else keras_method)(self, epoch)

    return _log_embeddings
