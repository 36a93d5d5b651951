"""`paceline.SidecarEvaluator`: evaluates what a training writes into a directory, for those who start it themselves."""

import logging
import os
from collections.abc import Sequence
from typing import Any

from paceline.evaluation.checkpoint_source import CheckpointSource
from paceline.evaluation.evaluated_data import EvaluatedData
from paceline.evaluation.evaluation_log import LINES_FILE, EvaluationLog, folder_for
from paceline.evaluation.file_source import FileSource
from paceline.evaluation.follower import Follower
from paceline.evaluation.snapshot_source import SnapshotSource
from paceline.evaluation.weight_source import Moment, Weights, WeightSource
from paceline.fit.files.this_save import allow_saves
from paceline.resilience.job_end import job_has_ended

_LOGGER = logging.getLogger("paceline")


class SidecarEvaluator:
    """Evaluates a model with the weights that a training writes, each time newer ones are there.

        model = build_and_compile()
        paceline.SidecarEvaluator(model, validation, "snapshots", max_evaluations=10).start()

    It takes the place of Keras 2's `tf.keras.utils.SidecarEvaluator`, which Keras 3 does not have, with its arguments.
    In `checkpoint_dir` may be snapshots of Paceline, files of `keras.callbacks.ModelCheckpoint` (``.keras``,
    ``.weights.h5``), or checkpoints of ``tf.train.Checkpoint(model=model, optimizer=optimizer)``. Files that are only
    half written are not read, and nothing is locked. Evaluations are written to ``evaluator/`` in that directory:
    ``evaluations.jsonl``, and points for TensorBoard. Started again, it goes on behind the last line.

    Args:
        model: Compiled, and of the same layers as the one that is trained; built from the shapes of `data`, if need be.
        data: What `model.evaluate` takes as `x`, or a tuple ``(x, y)`` or ``(x, y, sample_weight)``.
        checkpoint_dir: The directory; need not be there yet. Object stores' URLs: of snapshots only.
        steps: Batches of one evaluation. None: all of `data`.
        max_evaluations: Ends after weights with this number, or a larger one: ``ckpt-10`` or ``model-10.keras`` have
            10, a snapshot the number of epochs that had ended. This is not the number of evaluations: weights that come
            while others are evaluated are passed over. None: with snapshots, ends when the job that took them has
            ended `fit` and its process; else never.
        callbacks: Of each evaluation.
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        checkpoint_dir: str | os.PathLike[str],
        steps: int | None = None,
        max_evaluations: int | None = None,
        callbacks: Sequence[Any] | None = None,
    ) -> None:
        self.model = model
        self.data = data
        self.checkpoint_dir = os.fspath(checkpoint_dir)
        self.steps = steps
        self.max_evaluations = max_evaluations
        self.callbacks = [*(callbacks or ())]

    def start(self) -> None:
        """Evaluates until the last weights have been evaluated.

        Raises:
            ValueError: weights are of another model.
            RuntimeError: the model cannot be built from the shapes of its data.
            OSError: the lines cannot be written.
        """
        allow_saves()
        source = _AnySource(self.checkpoint_dir)
        with EvaluationLog(folder_for(self.checkpoint_dir)) as log:
            data = EvaluatedData(self.model, self.data, None, self.steps, self.callbacks)
            _LOGGER.info("evaluates the weights in %s, and writes %s", self.checkpoint_dir, log.folder / LINES_FILE)
            Follower(source, self.model, data.evaluate, log).follow(self._is_over, job_has_ended)

    def _is_over(self, newest: Weights | None) -> bool:
        if newest is None:
            return False
        is_last = self.max_evaluations is not None and (newest.number or 0) >= self.max_evaluations
        return is_last or newest.is_final


class _AnySource(WeightSource):
    """A directory of one of the kinds, which shows when something lies there."""

    def __init__(self, directory: str) -> None:
        of_paths = () if "://" in directory else (CheckpointSource(directory), FileSource(directory))
        self._sources: tuple[WeightSource, ...] = (SnapshotSource(directory), *of_paths)
        self._chosen = self._sources[0]

    def found(self) -> Sequence[Weights]:
        """See `WeightSource.found`."""
        for source in self._sources:
            if found := source.found():
                self._chosen = source
                return found
        return ()

    def load(self, weights: Weights, model: Any) -> Moment:
        """See `WeightSource.load`. Callbacks, such as TensorBoard's, read the step from the optimizer."""
        moment = self._chosen.load(weights, model)
        iterations = getattr(getattr(model, "optimizer", None), "iterations", None)
        if iterations is not None and moment.step is not None:
            iterations.assign(moment.step)
        return moment
