"""Weights from the files of Keras's `ModelCheckpoint` and `model.save`: ``.keras``, ``.weights.h5``, ``.h5``."""

import re
import warnings
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras

from paceline.evaluation.weight_source import Moment, NotReadableError, Weights, WeightSource

_FILE = re.compile(r"(?P<stem>.*?)(\.keras|(\.weights)?\.h5)")
_NUMBER = re.compile(r"\d+$", re.ASCII)
_ITERATIONS = "optimizer/vars/0"
"""Where a ``.keras`` file has the number of steps."""


class FileSource(WeightSource):
    """The files in a directory.

    Args:
        directory: A path.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory).expanduser()

    def found(self) -> Sequence[Weights]:
        """See `WeightSource.found`; the file that was changed last is the newest."""
        found = []
        with suppress(OSError):
            for entry in self._directory.iterdir():
                with suppress(OSError):  # gone meanwhile
                    match = _FILE.fullmatch(entry.name)
                    if match and not entry.name.startswith(".") and entry.is_file():
                        number = _NUMBER.search(match["stem"])
                        changed_at, stamp = _stamp(entry)
                        found.append(Weights(entry.name, stamp, (changed_at,), int(number[0]) if number else None))
        return sorted(found, key=lambda weights: weights.order, reverse=True)

    def load(self, weights: Weights, model: Any) -> Moment:
        """See `WeightSource.load`. A file that is changed while it is read counts as incomplete."""
        path = self._directory / weights.name
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the optimizer's state, which no evaluation needs
                keras.saving.load_weights(model, path)
            step = _step_in(path)
            _, stamp = _stamp(path)
        except Exception as fault:  # whatever Keras and HDF5 raise of half a file
            raise NotReadableError(str(fault).partition("\n")[0]) from fault
        if stamp != weights.stamp:
            raise NotReadableError("the file was changed while it was read")
        return Moment(weights.number if step is None else step)


def _stamp(path: Path) -> tuple[float, str]:
    status = path.stat()
    return status.st_mtime, f"{status.st_mtime_ns}-{status.st_size}"


def _step_in(path: Path) -> int | None:
    if path.suffix != ".keras":
        return None
    import h5py  # type: ignore[import-untyped]  # Keras's own

    with zipfile.ZipFile(path) as archive, archive.open("model.weights.h5") as file, h5py.File(file, "r") as values:
        return int(values[_ITERATIONS][()]) if _ITERATIONS in values else None
