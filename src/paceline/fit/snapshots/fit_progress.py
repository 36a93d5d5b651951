"""How far a `fit` is: counts its steps and epochs, and emits its events."""

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from paceline.comm.world import World
from paceline.events.bus import bus
from paceline.events.worker_events import BatchDone, EpochBegan, EpochEnded, FitBegan, FitEnded, StepDone, TraceBegan
from paceline.fit.run import FitObserver


class FitProgress(FitObserver):
    """Counts one `fit`. It observes one that takes no snapshots.

    Args:
        world: The ranks that train its model.
        call: The number of this call of `fit` in the script, from 0.
        step: Optimizer steps of the job before this `fit`.
        model: What it trains, if it observes the `fit`.
    """

    def __init__(self, world: World, call: int, step: int, model: Any = None) -> None:
        self.step = step
        """Optimizer steps of the job so far."""
        self.epoch = 0
        self.steps_in_epoch = 0
        self._rank = world.rank
        self._call = call
        self._model = model
        self._callbacks: Any = None
        self._epoch_began_at = self._stepped_at = 0.0

    def begin(self, *, is_repeated: bool = False) -> None:
        """`fit` was called."""
        bus.emit(FitBegan(self._rank, self._call, self.step, is_repeated))

    def begin_epoch(self, epoch: int) -> None:
        """Its steps are counted from 0."""
        self.epoch, self.steps_in_epoch = epoch, 0

    def epoch_has_begun(self) -> None:
        """Its state is restored, and its first step may come."""
        self._epoch_began_at = self._stepped_at = time.monotonic()
        bus.emit(EpochBegan(self._rank, self.epoch, self.step))

    def step_done(self, end_step: int, *, is_last: bool = False) -> None:
        """The step with this number in its epoch (from 0) is done, and those before it.

        Args:
            end_step: Which.
            is_last: Whether it is known to be the last one of this `fit`.
        """
        num_steps = end_step + 1 - self.steps_in_epoch
        self.step += num_steps
        self.steps_in_epoch = end_step + 1
        now = time.monotonic()
        seconds, self._stepped_at = now - self._stepped_at, now
        bus.emit(StepDone(self._rank, self.step, self.epoch, num_steps, seconds, is_last))

    def batch_done(self, *, is_validation: bool) -> None:
        """A batch of a validation is, or of what a callback evaluates, predicts or trains."""
        bus.emit(BatchDone(self._rank, self.step, self.epoch, is_validation))

    def tracing(self) -> None:
        """See `FitObserver`: the next step is traced first."""
        bus.emit(TraceBegan(self._rank))

    def epoch_ended(self, logs: Mapping[str, Any] | None) -> None:
        """The callbacks' `on_epoch_end` has run."""
        seconds = time.monotonic() - self._epoch_began_at
        bus.emit(EpochEnded(self._rank, self.epoch, self.step, seconds, numbers_of(logs or {})))

    def end(self, *, has_failed: bool = False) -> None:
        """`fit` returns, or raises: a script that catches that may do without steps for long."""
        bus.emit(FitEnded(self._rank, self.step, has_failed))

    # For a `fit` that nothing else follows, and for what callbacks run within one.

    def hook_ended(self, hook: str, callbacks: Any, position: int, logs: Any) -> None:
        """See `FitObserver`."""
        if hook == "on_train_begin" and callbacks.model is self._model:
            self._callbacks = callbacks
        if callbacks is not self._callbacks:
            self.count_others(hook, callbacks.model)
        elif hook == "on_epoch_begin":
            self.begin_epoch(position)
            self.epoch_has_begun()
        elif hook == "on_train_batch_end":
            self.step_done(position)
        elif hook == "on_test_batch_end":
            self.batch_done(is_validation=True)
        elif hook == "on_epoch_end":
            self.epoch_ended(logs)

    def count_others(self, hook: str, model: Any) -> None:
        """A callback evaluates, predicts, or trains another model."""
        if hook == "on_predict_begin":
            # Keras makes this function in another way than those of `fit` and `evaluate`.
            count_traces = getattr(model.predict_function, "experimental_get_tracing_count", None)
            if count_traces is not None and count_traces() == 0:
                self.tracing()
        elif hook in _HOOKS_OF_BATCHES:
            self.batch_done(is_validation=False)


_HOOKS_OF_BATCHES = ("on_train_batch_end", "on_test_batch_end", "on_predict_batch_end")


def numbers_of(logs: Mapping[str, Any]) -> dict[str, float | None]:
    """Those of the logs that are one number: a `train_step` of the user's may give texts, arrays, or None.

    >>> numbers_of({"loss": 1, "rows": [1, 2], "name": "x"})
    {'loss': 1.0}
    """
    numbers: dict[str, float | None] = {}
    for name, value in plain(logs).items():
        with contextlib.suppress(TypeError, ValueError):
            if np.ndim(value) == 0:
                numbers[name] = float(value)
    return numbers


def plain(logs: Any) -> Any:
    """Logs as numbers, whatever holds them."""
    return {name: plain(value) if isinstance(value, dict) else _number(value) for name, value in (logs or {}).items()}


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return [_number(item) for item in value]
    return value.numpy() if hasattr(value, "numpy") else value
