"""Files that callbacks write, in a `fit` that resumes: rows of `CSVLogger`, weights newer than the snapshot.

CSVLogger          rows of epochs that will be repeated are removed
BackupAndRestore   does nothing (`files/backups.py`)
ModelCheckpoint    its files stay, and may be from later than the snapshot: who loads one meets weights that the run
                   had not reached yet. What the file held then is nowhere: it can only be said.

    first run   ─ snapshot ─── best.keras written ─ †
    rerun       └─ resumes ─ a callback loads best.keras ─ best.keras written again
"""

import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from paceline.comm.world import current_world
from paceline.resilience.parts import Part, Saved, Scope

_LOGGER = logging.getLogger("paceline")


# CSVLogger

_made_to_append: weakref.WeakSet[Any] = weakref.WeakSet()
"""Loggers whose script says that each `fit` begins its file anew; the one that goes on must not."""


def csv_part(callbacks: Sequence[Any], *, leads: bool) -> Part:
    """How far this rank has written the file of each `CSVLogger`, by the name that the script gives it.

    Restored before `on_train_begin`, which would empty the files. Files that another rank had written stay as they are.

    Args:
        callbacks: Of the `fit`.
        leads: Whether this rank restores what the first one had, where their number has changed.
    """

    def restore(saved: Saved) -> None:
        _as_the_script_says(callbacks)
        if saved.same_ranks or leads:
            _cut_back_all(callbacks, saved.state)

    return Part("csv_files", Scope.RANK, lambda _: positions(callbacks), restore)


def positions(callbacks: Sequence[Any]) -> dict[str, int]:
    """See `csv_part`."""
    return {str(logger.filename): logger.csv_file.tell() for logger in _loggers(callbacks) if _is_real(logger)}


def _cut_back_all(callbacks: Sequence[Any], written: Mapping[str, int]) -> None:
    for logger in _loggers(callbacks):
        position = written.get(str(logger.filename))
        if position is not None and _cut_back(Path(logger.filename), position) and not logger.append:
            logger.append = True
            _made_to_append.add(logger)


def _cut_back(path: Path, position: int) -> bool:
    """Whether the file was so long; one that is not there was not."""
    try:
        if not path.is_file() or path.stat().st_size < position:
            return False
        os.truncate(path, position)
    except FileNotFoundError:
        return False
    return True


def begin(callbacks: Sequence[Any], noted_first: Callable[[Mapping[str, int]], Mapping[str, int] | None]) -> None:
    """Loggers do what their script says; where an earlier life had begun this `fit`, rows that it appended go.

    Args:
        callbacks: Of the `fit`, which begins at its first step.
        noted_first: Gives what an earlier life has noted as it began; else notes what it is given.
    """
    _as_the_script_says(callbacks)
    appended = {str(logger.filename): Path(logger.filename) for logger in _loggers(callbacks) if logger.append}
    sizes = {name: path.stat().st_size if path.is_file() else 0 for name, path in appended.items()}
    for name, size in (noted_first(sizes) or {}).items() if sizes else ():
        if size < sizes.get(name, 0):
            _cut(appended[name], size)


def _cut(path: Path, size: int) -> None:
    content = path.read_bytes()
    aside = _new_beside(path, content[size:])
    os.truncate(path, size)
    _LOGGER.warning(
        "an earlier run of this fit, which cannot be resumed, appended to %s: its last %d bytes were moved to %s.",
        path,
        len(content) - size,
        aside.name,
    )


def _new_beside(path: Path, content: bytes) -> Path:
    """A new file, on disk: earlier runs may have left theirs, and nobody's rows are overwritten."""
    aside, number = path.with_name(f"{path.name}.cut"), 1
    while True:
        try:
            file = aside.open("xb")
            break
        except FileExistsError:
            number += 1
            aside = path.with_name(f"{path.name}.cut-{number}")
    with file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return aside


def _as_the_script_says(callbacks: Sequence[Any]) -> None:
    for logger in _made_to_append.intersection(_loggers(callbacks)):  # in an earlier `fit`
        logger.append, logger.append_header = False, True
        _made_to_append.discard(logger)


def _loggers(callbacks: Sequence[Any]) -> list[Any]:
    return [callback for callback in callbacks if isinstance(callback, keras.callbacks.CSVLogger)]


def _is_real(callback: Any) -> bool:
    file = getattr(callback, "csv_file", None)
    return file is not None and not file.closed and file.name != os.devnull


# ModelCheckpoint


@dataclass(slots=True)
class _Gap:
    """What happened between these two moments is unknown to the run."""

    step: int
    taken_at_seconds: float
    resumed_at_seconds: float


_gaps: list[_Gap] = []
"""That of the `fit` that goes on, if one does."""


def resumed(step: int, taken_at_seconds: float) -> None:
    """A `fit` goes on now from the snapshot of `step`, for which its state was copied then (seconds since 1970)."""
    _gaps[:] = [_Gap(step, taken_at_seconds, time.time())]


def ended() -> None:
    """The `fit` has come back."""
    _gaps.clear()


def tell_if_later(path: Any) -> None:
    """Weights or a model are loaded from `path`: says so if the file is of a step that will be taken again."""
    if not _gaps or not current_world().is_chief:
        return
    try:
        changed_at = os.stat(path).st_mtime  # noqa: PTH116  # whatever the script gave
    except (OSError, TypeError, ValueError):
        return
    gap = _gaps[0]
    if gap.taken_at_seconds < changed_at < gap.resumed_at_seconds:
        _LOGGER.warning(
            "%s was written after the snapshot of step %d, from which this run resumed. A callback that loads "
            "the file now gets LATER weights than in a run without a restart, so the result may differ. If a "
            "callback loads weights back, keep them in an attribute of the callback: snapshots contain "
            "attributes.",
            path,
            gap.step,
        )
