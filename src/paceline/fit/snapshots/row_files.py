"""`CSVLogger` in a run that goes on: rows of epochs that will be trained again go, the others stay."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras


def positions(callbacks: Sequence[Any]) -> dict[str, int]:
    """How far the file of each `CSVLogger` had been written, by the logger's place in the list."""
    return {
        str(index): callback.csv_file.tell()
        for index, callback in enumerate(callbacks)
        if isinstance(callback, keras.callbacks.CSVLogger) and _is_real(callback)
    }


def cut_back(callbacks: Sequence[Any], saved: Mapping[str, int]) -> None:
    """Cuts the files back to `saved`, and has their loggers append; before `on_train_begin`, which would empty them."""
    for index, callback in enumerate(callbacks):
        position = saved.get(str(index))
        path = Path(getattr(callback, "filename", ""))
        if position is None or not isinstance(callback, keras.callbacks.CSVLogger) or not path.is_file():
            continue
        if path.stat().st_size >= position:
            os.truncate(path, position)
            callback.append = True


def _is_real(callback: Any) -> bool:
    file = getattr(callback, "csv_file", None)
    return file is not None and not file.closed and file.name != os.devnull
