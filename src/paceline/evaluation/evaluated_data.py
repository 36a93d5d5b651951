"""The data of the evaluations, and `model.evaluate` on them, as `fit` does its validations."""

from collections.abc import Sequence
from typing import Any

import keras

from paceline.fit import compat
from paceline.fit.building import build_from


class EvaluatedData:
    """The data that one model is evaluated on, again and again.

    Args:
        model: Compiled; built from the shapes of the data, if need be.
        data: A dataset or another source, or a tuple ``(x, y)`` or ``(x, y, sample_weight)``, as `fit` takes its
            `validation_data`.
        batch_size: For arrays; None: 32.
        steps: Batches of one evaluation; None: all.
        callbacks: Of each evaluation.

    Raises:
        RuntimeError: the model cannot be built from the shapes of the data.
    """

    def __init__(
        self, model: Any, data: Any, batch_size: int | None, steps: int | None, callbacks: Sequence[Any] = ()
    ) -> None:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        self._model = model
        self._callbacks = [*callbacks]
        self._arguments = {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size, "steps": steps}
        # As in a `fit`, all evaluations read through one of these: arrays are converted once.
        self._epochs = compat.trainer_module.TFEpochIterator(
            x=x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps,
            shuffle=False,
            distribute_strategy=model.distribute_strategy,
            steps_per_execution=model.steps_per_execution,
        )
        build_from(model, self._epochs._distributed_dataset.element_spec)

    def evaluate(self) -> dict[str, Any]:
        """The loss and the metrics of the model as it is now."""
        self._model._eval_epoch_iterator = self._epochs
        try:
            logs: dict[str, Any] = self._model.evaluate(
                **self._arguments,
                callbacks=list(self._callbacks),
                verbose=0,
                return_dict=True,
                _use_cached_eval_dataset=True,
            )
        finally:
            del self._model._eval_epoch_iterator
        return logs
