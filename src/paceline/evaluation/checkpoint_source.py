"""Weights from a directory of `tf.train.Checkpoint` or `tf.train.CheckpointManager`: ``ckpt-1``, ``ckpt-2``, ..."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.evaluation.weight_source import Moment, NotReadableError, Weights, WeightSource

_NUMBER = re.compile(r"-(\d+)$", re.ASCII)
_STEPS = re.compile(r"(^|.*/)(_?iterations|iter|global_step|step)/\.ATTRIBUTES/VARIABLE_VALUE")
_MODEL = "model"


class CheckpointSource(WeightSource):
    """The checkpoints that the file ``checkpoint`` in a directory lists.

    They are of Keras 2's layout, ``tf.train.Checkpoint(model=model, optimizer=optimizer)``, or of a model alone,
    ``tf.train.Checkpoint(model)``.

    Args:
        directory: A path.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory).expanduser()

    def found(self) -> Sequence[Weights]:
        """See `WeightSource.found`; the checkpoint that was written last is the newest."""
        state = tf.train.get_checkpoint_state(str(self._directory))
        found = []
        for path in state.all_model_checkpoint_paths if state is not None else ():
            with suppress(OSError):  # removed meanwhile
                status = Path(f"{path}.index").stat()
                number = _NUMBER.search(path)
                stamp = f"{status.st_mtime_ns}-{status.st_size}"
                order = (status.st_mtime, float(number[1]) if number else 0.0)
                found.append(Weights(Path(path).name, stamp, order, int(number[1]) if number else None))
        return sorted(found, key=lambda weights: weights.order, reverse=True)

    def load(self, weights: Weights, model: Any) -> Moment:
        """See `WeightSource.load`."""
        path = str(self._directory / weights.name)
        try:
            reader = tf.train.load_checkpoint(path)
            names = reader.get_variable_to_shape_map().keys()
            is_within = any(name.startswith(f"{_MODEL}/") for name in names)
            _unset(model)
            checkpoint = tf.train.Checkpoint(**{_MODEL: model}) if is_within else tf.train.Checkpoint(model)
            checkpoint.restore(path).expect_partial()
            steps = sorted((name for name in names if _STEPS.fullmatch(name)), key=len)
            step = int(reader.get_tensor(steps[0])) if steps else weights.number
        except (tf.errors.OpError, OSError) as fault:
            raise NotReadableError(str(fault).partition("\n")[0]) from fault
        if missing := _still_unset(model):
            raise ValueError(
                f"the checkpoint {path} has no values for {', '.join(missing)}. Write it with "
                "tf.train.Checkpoint(model=model, optimizer=optimizer), of a model that is built as this one is. "
                "[evaluator]"
            )
        return Moment(step)


def _unset(model: Any) -> None:
    """TensorFlow does not say which weights a checkpoint did not have: those that are NaN afterwards."""
    for weight in model.weights:
        if weight.dtype.startswith(("float", "bfloat")):
            weight.assign(np.full(weight.shape, np.nan))


def _still_unset(model: Any) -> list[str]:
    floats = [weight for weight in model.weights if weight.dtype.startswith(("float", "bfloat"))]
    return [one.path for one in floats if one.shape and np.isnan(one.numpy().astype("float64")).all()]
