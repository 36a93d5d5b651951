"""What an evaluator writes: a JSON line and TensorBoard's points for each evaluation.

FOLDER/evaluations.jsonl      read again when the evaluator comes back, so no evaluation stands there twice
FOLDER/events.out.tfevents.*  evaluation_<metric>_vs_iterations, as Keras 2 calls them
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.wire.codec import Decoder, GarbledError, Record, encode

LINES_FILE = "evaluations.jsonl"


class Evaluation(Record, frozen=True):
    """One line."""

    time: float
    """When it was written, in seconds since 1970."""
    fit_call: int | None
    """The call of `fit` in the script, from 0; null: not known."""
    step: int | None
    """Optimizer steps of the job so far; null: not known."""
    epoch: int | None
    """That was being trained, from 0; null: not known."""
    name: str
    """Of the snapshot or checkpoint."""
    stamp: str
    """Tells it from another one of the same name."""
    weights: str
    """A checksum of the weights."""
    seconds: float
    """How long the evaluation took."""
    metrics: dict[str, Any]
    """As `model.evaluate` returns them, by name; null: not a finite number."""


_line = Decoder[Evaluation](Evaluation)


class EvaluationLog:
    """The files in one folder; a context manager that opens and closes them.

    Args:
        folder: Made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / LINES_FILE
        self._descriptor = -1
        self._summaries: Any = None

    def __enter__(self) -> "EvaluationLog":
        """Raises: OSError: the folder cannot be written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
        if self._summaries is not None:
            self._summaries.close()

    def written(self) -> tuple[Evaluation, ...]:
        """All lines, in order; what is no whole line is passed over."""
        found = []
        for text in self._path.read_bytes().split(b"\n")[:-1]:
            try:
                found.append(_line(text))
            except GarbledError:
                continue
        return tuple(found)

    def write(self, evaluation: Evaluation) -> None:
        """Appends one, on disk when this returns.

        Raises:
            OSError: the disk is full.
        """
        # The line comes last, in one piece: an evaluator that is killed before it evaluates again, and writes the same
        # points a second time at the same step.
        self._write_points(evaluation)
        size = os.fstat(self._descriptor).st_size
        is_torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
        os.write(self._descriptor, b"\n" * is_torn + encode(evaluation) + b"\n")
        os.fsync(self._descriptor)

    def _write_points(self, evaluation: Evaluation) -> None:
        if self._summaries is None:
            self._summaries = tf.summary.create_file_writer(str(self.folder))
        metadata = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})
        with self._summaries.as_default(evaluation.step or 0):
            for name, value in evaluation.metrics.items():
                if isinstance(value, float):
                    # Not `tf.summary.scalar`, which needs the package tensorboard.
                    tf.summary.write(f"evaluation_{name}_vs_iterations", np.float32(value), metadata=metadata)
        self._summaries.flush()


def plain_metrics(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics as JSON knows them: numbers, or lists of numbers.

    >>> plain_metrics({"loss": np.float32(0.5), "f1": np.array([1.0, np.nan])})
    {'loss': 0.5, 'f1': [1.0, None]}
    """
    return {name: _plain(np.asarray(value).tolist()) for name, value in logs.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    return str(value)


def folder_for(directory: str) -> Path:
    """Where the evaluations of what lies in `directory` are written: below it; for a URL, here."""
    return Path("evaluator") if "://" in directory else Path(directory).expanduser() / "evaluator"
