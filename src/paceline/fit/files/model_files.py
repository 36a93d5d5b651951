"""Keras's functions that write a model's files, called on every rank with one path: one rank writes a complete file.

A model with variables whose value is a sum over ranks is read by all ranks together, so no rank may wait for the writer
meanwhile: each writes the same beside the file, and one of them puts it in its place.

Two seams, each below all of Keras's public spellings (`model.save`, `keras.models.save_model`, `ModelCheckpoint`, …):

    saving_api.save_model, save_weights, Model.export      the first rank does all of it, questions and errors included
         └── saving_lib, legacy_h5_format                  what is written takes the old one's place when it is whole
"""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from paceline.comm.world import current_world
from paceline.fit import compat
from paceline.fit.engine import engine_of
from paceline.fit.files.atomic_write import replacing
from paceline.fit.files.claims import shared_claims
from paceline.fit.files.this_save import saves_nothing, this_save
from paceline.fit.snapshots.callback_files import tell_if_later
from paceline.strategy.variables import parts_read_together, values_of_all_ranks

Function = Callable[..., Any]


def is_shared(model: Any) -> bool:
    """Whether `model` is one of the replicas that several ranks train together."""
    group = engine_of(model).replicas
    return group is not None and group.size > 1


def moment_of(model: Any) -> str:
    """One word for the state of `model`: the same on all ranks, and another one after a step."""
    iterations = getattr(getattr(model, "optimizer", None), "iterations", None)
    return f"{checksum(model.trainable_variables)}.{0 if iterations is None else int(iterations)}"


def checksum(variables: Iterable[Any]) -> str:
    """One word for the values of `variables`."""
    number = 1
    for variable in variables:
        number = zlib.adler32(np.ascontiguousarray(variable.numpy()).reshape(-1).view(np.uint8).data, number)
    return f"{number:08x}"


@contextmanager
def written_once(model: Any, name: str) -> Iterator[bool]:
    """Whether this rank is to write what `name` stands for; what it saves inside is part of that.

    Collective, and true on every rank, for a model with `parts_read_together`.

    Args:
        model: What is saved.
        name: A full path, or another text that means the same on all ranks.
    """
    if saves_nothing():
        yield False
        return
    if this_save.is_writer or not is_shared(model):
        yield True
        return
    claim = shared_claims().claimed(name, moment_of(model))
    if parts_read_together(model):
        with _writing(turn=claim):
            yield True
        return
    with claim as is_ours, _writing():
        yield is_ours


@contextmanager
def _writing(turn: AbstractContextManager[bool] | None = None) -> Iterator[None]:
    this_save.is_writer, this_save.turn = True, turn
    try:
        yield
    finally:
        this_save.is_writer, this_save.turn = False, None


def _replacing(path: Any, *, makes_parents: bool = False) -> AbstractContextManager[str]:
    turn, this_save.turn = this_save.turn, None
    return replacing(os.fspath(path), makes_parents=makes_parents, turn=turn)


def full_path(path: str | os.PathLike[str]) -> str:
    """`path` as every rank knows it, wherever its script's working directory is."""
    text = os.fspath(path)
    return text if compat.file_utils.is_remote_path(text) or "://" in text else os.path.realpath(text)


def saved(keras_save: Function) -> Function:
    """`save_model(model, filepath, …)` or `save_weights`: one rank does it, and the others wait for it or help."""

    def save(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        def write() -> Any:
            return keras_save(model, filepath, *args, **kwargs)

        engine = engine_of(model)
        if not isinstance(filepath, (str, os.PathLike)):
            return engine.saved(model, filepath, write)
        with written_once(model, full_path(filepath)) as is_ours:
            return engine.saved(model, filepath, write) if is_ours else None

    return save


def loaded(keras_load: Function) -> Function:
    """`load_weights(model, filepath, …)`, also of a model of which this rank has a part."""

    def load_weights(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        tell_if_later(filepath)
        return engine_of(model).loaded(model, lambda: keras_load(model, filepath, *args, **kwargs))

    return load_weights


def model_loaded(keras_load: Function) -> Function:
    """`load_model(filepath, …)`."""

    def load_model(filepath: Any, *args: Any, **kwargs: Any) -> Any:
        tell_if_later(filepath)
        return keras_load(filepath, *args, **kwargs)

    return load_model


def _is_replaced(model: Any, filepath: Any) -> bool:
    if not isinstance(filepath, (str, os.PathLike)) or full_path(filepath) != os.path.realpath(filepath):
        return False
    return current_world().size > 1 or engine_of(model).group is not None


def model_replaced(keras_save: Function) -> Function:
    """`saving_lib.save_model`, in its file's or directory's place at once."""

    def save_model(model: Any, filepath: Any, weights_format: str = "h5", zipped: bool = True) -> Any:
        if not _is_replaced(model, filepath) or zipped != str(filepath).endswith(".keras"):
            return keras_save(model, filepath, weights_format, zipped)
        with _replacing(filepath, makes_parents=not zipped) as unfinished:
            return keras_save(model, unfinished, weights_format, zipped)

    return save_model


def weights_replaced(keras_save: Function) -> Function:
    """`saving_lib.save_weights_only`, in its file's place at once; shards one by one, then their list."""

    def save_weights_only(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_replaced(model, filepath):
            return keras_save(model, filepath, *args, **kwargs)
        with _replacing(filepath) as unfinished:
            return keras_save(model, unfinished, *args, **kwargs)

    return save_weights_only


def hdf5_replaced(keras_save: Function) -> Function:
    """`legacy_h5_format.save_model_to_hdf5`, in its file's place at once."""

    def save_model_to_hdf5(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_replaced(model, filepath):
            return keras_save(model, filepath, *args, **kwargs)
        with _replacing(filepath, makes_parents=True) as unfinished:
            return keras_save(model, unfinished, *args, **kwargs)

    return save_model_to_hdf5


def exported(keras_export: Function) -> Function:
    """`Model.export`: one rank does it, in its file's or directory's place at once, and the others wait."""

    def export(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        def write(path: Any) -> Any:
            return engine_of(self).exported(self, lambda: keras_export(self, path, *args, **kwargs))

        if not isinstance(filepath, (str, os.PathLike)):
            return write(filepath)
        with written_once(self, full_path(filepath)) as is_ours:
            if not is_ours:
                return None
            return _export_replaced(self, filepath, write) if _is_replaced(self, filepath) else write(filepath)

    return export


def _export_replaced(model: Any, filepath: Any, write: Function) -> Any:
    with _replacing(filepath, makes_parents=True) as unfinished:
        this_save.names = (unfinished, os.fspath(filepath))
        try:
            # Keras's exports hold the variables that serving reads, not what is distributed about them.
            with values_of_all_ranks(parts_read_together(model) if is_shared(model) else ()):
                return write(unfinished)
        finally:
            this_save.names = None


def file_replaced(keras_open: Function) -> Function:
    """Keras's `file_utils.File`, which writes what a callback adds to its weights."""

    def open_file(path: Any, mode: str = "r") -> Any:
        if not this_save.is_writer or mode != "w" or full_path(path) != os.path.realpath(path):
            return keras_open(path, mode)
        return _whole_file(os.fspath(path))

    return open_file


@contextmanager
def _whole_file(path: str) -> Iterator[TextIO]:
    with _replacing(path) as unfinished, Path(unfinished).open("w") as file:
        yield file


def by_its_name(message: Any) -> Any:
    """What Keras says of an export, with the name that the user gave it."""
    return message.replace(*this_save.names) if this_save.names is not None and isinstance(message, str) else message
