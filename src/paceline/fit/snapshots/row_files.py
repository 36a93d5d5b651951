"""`CSVLogger` in a run that goes on: rows of epochs that will be trained again go, the others stay."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from paceline.comm.world import World
from paceline.fit.snapshots.restored import Restored


def positions(callbacks: Sequence[Any]) -> list[int | None]:
    """How far the file of each `CSVLogger` had been written, in the loggers' order; None: this rank writes none."""
    return [logger.csv_file.tell() if _is_real(logger) else None for logger in _loggers(callbacks)]


def cut_back(callbacks: Sequence[Any], restored: Restored, world: World) -> None:
    """Cuts the files back to where a snapshot had them, and has their loggers append.

    Called before `on_train_begin`, which would empty them. Files that another rank had written stay as they are.
    """
    if not (restored.same_world or world.rank == 0):
        return
    for logger, position in zip(_loggers(callbacks), restored.own["row_files"], strict=False):
        path = Path(logger.filename)
        if position is not None and path.is_file() and path.stat().st_size >= position:
            os.truncate(path, position)
            logger.append = True


def _loggers(callbacks: Sequence[Any]) -> list[Any]:
    return [callback for callback in callbacks if isinstance(callback, keras.callbacks.CSVLogger)]


def _is_real(callback: Any) -> bool:
    file = getattr(callback, "csv_file", None)
    return file is not None and not file.closed and file.name != os.devnull
