"""`tf.train.Checkpoint`, its manager, `tf.saved_model.save` and `Dataset.save`, on every rank with one directory.

Checkpoints all come to `Checkpoint._write`, after each rank has counted its own number up. One rank writes and deletes
what is too old; the others keep the same books (`manager.checkpoints`, `latest_checkpoint`) and leave the directory
alone. Of a SavedModel one rank writes a complete directory. Keras's exports and `keras.export.ExportArchive` come here,
too; where `model_files.py` sees to them already, nothing is done.
"""

import copy
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.world import current_world
from paceline.fit.files.atomic_write import replacing
from paceline.fit.files.claims import shared_claims
from paceline.fit.files.model_files import checksum, full_path
from paceline.fit.files.this_save import saves_nothing, this_save
from paceline.strategy.variables import parts_read_together

Function = Callable[..., Any]

_NO_MOMENT = "-"
"""Numbered names say by themselves which save is meant."""


def written_once(tensorflow_write: Function) -> Function:
    """`tf.train.Checkpoint._write`: one rank writes, the others wait for it."""

    def _write(self: Any, file_prefix: Any, options: Any = None) -> Any:
        if saves_nothing():
            return _noted(os.fspath(file_prefix), options, keeps_books_only=True)
        if current_world().size == 1 or not tf.executing_eagerly():
            return tensorflow_write(self, file_prefix, options)
        prefix = os.fspath(file_prefix)
        if parts_read_together(self):
            return _written_together(self, tensorflow_write, prefix, options)
        with shared_claims().claimed(_name_of(prefix), _NO_MOMENT) as is_ours:
            if is_ours:
                return tensorflow_write(self, prefix, options)
            return _noted(prefix, options, keeps_books_only=True)

    return _write


def _written_together(checkpoint: Any, tensorflow_write: Function, prefix: str, options: Any) -> Any:
    """With variables whose value is a sum over ranks, which only all ranks together can read. Collective.

    Each rank writes the same; the first one to have done so puts it in its place.
    """
    plain = copy.copy(options) or tf.train.CheckpointOptions()
    plain.experimental_write_callbacks = None

    @contextmanager
    def turn() -> Iterator[bool]:
        with shared_claims().claimed(_name_of(prefix), _NO_MOMENT) as is_ours:
            yield is_ours
            _noted(prefix, options, keeps_books_only=not is_ours)

    with replacing(prefix, makes_parents=True, turn=turn()) as unfinished:
        tensorflow_write(checkpoint, unfinished, plain)
    return prefix


def _name_of(prefix: str) -> str:
    return f"checkpoint {full_path(prefix)}"


def _noted(prefix: str, options: Any, *, keeps_books_only: bool) -> str:
    """What follows a save, without the save: `prefix` has been written."""
    this_save.keeps_books_only = keeps_books_only
    try:
        for callback in (options and options.experimental_write_callbacks) or ():
            callback(*[prefix] * len(inspect.signature(callback).parameters))  # 0 or 1, as TensorFlow demands
    finally:
        this_save.keeps_books_only = False
    return prefix


def unless_keeping_books(tensorflow_function: Function) -> Function:
    """A function of TensorFlow that changes the checkpoints' directory; not on a rank that did not write."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return None if this_save.keeps_books_only else tensorflow_function(*args, **kwargs)

    return function


def saved_once(tensorflow_save: Function) -> Function:
    """`tf.saved_model.save(obj, export_dir, …)`: one rank writes, the others wait for it.

    Collective where values can only be read by all ranks together: each then writes the same, and one puts it there.
    """

    def save(obj: Any, export_dir: Any, *args: Any, **kwargs: Any) -> Any:
        if saves_nothing():
            return None
        if this_save.is_writer or current_world().size == 1 or not tf.executing_eagerly():
            return tensorflow_save(obj, export_dir, *args, **kwargs)
        name = full_path(export_dir)
        directory = os.fspath(export_dir)
        claim = shared_claims().claimed(name, _moment_of(obj))
        if parts_read_together(obj):
            return _save(tensorflow_save, obj, directory, args, kwargs, turn=claim)
        with claim as is_ours:
            return _save(tensorflow_save, obj, directory, args, kwargs, turn=None) if is_ours else None

    return save


def dataset_saved_once(tensorflow_save: Function) -> Function:
    """`tf.data.Dataset.save`: one rank of a host writes, the others wait for it."""

    def save(self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        world = current_world()
        if world.size == 1 or not tf.executing_eagerly():
            return tensorflow_save(self, path, *args, **kwargs)
        with shared_claims().claimed(f"dataset {full_path(path)}", str(world.identity.generation)) as is_ours:
            return tensorflow_save(self, path, *args, **kwargs) if is_ours else None

    return save


def _save(tensorflow_save: Function, obj: Any, directory: str, args: Any, kwargs: Any, turn: Any) -> Any:
    if full_path(directory) != os.path.realpath(directory):
        return tensorflow_save(obj, directory, *args, **kwargs)
    with replacing(directory, makes_parents=True, turn=turn) as unfinished:
        return tensorflow_save(obj, unfinished, *args, **kwargs)


def _moment_of(obj: Any) -> str:
    """One word for the state of `obj`: the same on all ranks, and another one after a step."""
    parts = tf.train.TrackableView(obj).descendants()
    return checksum(part for part in parts if _is_number(part))


def _is_number(part: Any) -> bool:
    """Whether it is a variable with numbers that a rank can read by itself."""
    if isinstance(part, keras.Variable):
        return True
    if not isinstance(part, tf.Variable) or part.synchronization == tf.VariableSynchronization.ON_READ:
        return False
    return part.dtype not in (tf.string, tf.resource, tf.variant)
