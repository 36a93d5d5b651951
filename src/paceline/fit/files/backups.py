"""`BackupAndRestore`, on every rank of a world, and beside snapshots.

In a `fit` that takes snapshots it does nothing: its weights are from another step than the position in the data, the
random generators and the other callbacks. Else all ranks load the same state, and one writes.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from paceline.comm.world import current_world
from paceline.fit.engine import engine_of
from paceline.fit.files.claims import shared_claims
from paceline.fit.files.keras_callbacks import is_follower
from paceline.fit.files.model_files import full_path, is_shared, written_once
from paceline.fit.snapshots.resumable_fit import is_in_fit
from paceline.strategy.seams import Seam

_LOGGER = logging.getLogger("paceline")

Function = Callable[..., Any]


def rows() -> list[Seam]:
    """The replacements of its methods."""
    backup, inactive = keras.callbacks.BackupAndRestore, "snapshots do what it does"
    return [
        Seam(backup, "_save_model", backed_up_once, "one rank writes, the others wait"),
        Seam(backup, "on_train_begin", restored_in_turn, f"every rank loads the same state; {inactive}"),
        Seam(backup, ("on_train_batch_end", "on_epoch_end"), without_snapshots, inactive),
        Seam(backup, "on_train_end", removed_in_turn, f"the first rank removes the directory; {inactive}"),
    ]


def backed_up_once(keras_save: Function) -> Function:
    """`BackupAndRestore._save_model`: one rank writes the weights and what belongs to them, the others wait for it.

    All ranks of a pipeline save the weights together; what belongs to them is the chief's to write.
    """

    def _save_model(self: Any) -> Any:
        if engine_of(self.model).saves_together and is_follower(self.model):
            return self.model.save_weights(self._weights_path, overwrite=True)
        with written_once(self.model, _name_of(self)) as is_ours:
            return keras_save(self) if is_ours else None

    return _save_model


def restored_in_turn(keras_restore: Function) -> Function:
    """`BackupAndRestore.on_train_begin`: every rank loads the same state, one after the other."""

    def on_train_begin(self: Any, logs: Any = None) -> Any:
        if is_in_fit():
            if current_world().is_chief:
                _tell_of_backups(str(self.backup_dir))
            return None
        if not is_shared(self.model):
            return keras_restore(self, logs)
        optimizer = self.model.optimizer
        if self.model.built and optimizer is not None and not optimizer.built:
            with self.model.distribute_strategy.scope():  # all ranks together, so not in turn
                optimizer.build(self.model.trainable_variables)
        with shared_claims().alone(_name_of(self)):
            return keras_restore(self, logs)

    return on_train_begin


def without_snapshots(keras_hook: Function) -> Function:
    """A hook in which `BackupAndRestore` saves."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if is_in_fit() else keras_hook(self, *args, **kwargs)

    return method


def removed_in_turn(keras_end: Function) -> Function:
    """`BackupAndRestore.on_train_end`: the first rank, or a pipeline's chief, removes the directory."""

    def on_train_end(self: Any, logs: Any = None) -> Any:
        if is_in_fit() or (engine_of(self.model).saves_together and is_follower(self.model)):
            return None
        if not is_shared(self.model):
            return keras_end(self, logs)
        with shared_claims().alone(_name_of(self)):
            return keras_end(self, logs)

    return on_train_end


def _name_of(backup: Any) -> str:
    return f"BackupAndRestore {full_path(backup.backup_dir)}"


def _tell_of_backups(backup_dir: str) -> None:
    text = "BackupAndRestore is inactive in this fit, because the fit takes snapshots and resumes only from snapshots."
    if Path(backup_dir).exists():
        text += " The files in %s are not read or changed; a run without snapshots resumes from them."
        _LOGGER.warning(text, backup_dir)
    else:
        _LOGGER.info(text)
