"""How fast `fit` gets through a dataset: Keras's own loop with the script's model, ended after a while.

Input and model share cores and wait for each other here as they do in training, so nothing about that is assumed.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import keras

from paceline.fit.engine import engine_of

_MANY_EPOCHS = 1_000_000_000


def speed_in_fit(
    model: Any, fit: Callable[..., Any], seconds: float, *, clock: Callable[[], float] = time.perf_counter
) -> Callable[[Any], float] | None:
    """A function that trains a model on a dataset for about `seconds`, and returns executions of its step a second.

    None where one process does not train the model by itself: under a pipeline or parameter servers.

    Args:
        model: Compiled. Its weights change. Neither callbacks of the script nor a validation run.
        fit: `keras.Model.fit`, as a function.
        seconds: How long, from the end of the first execution on.
        clock: Seconds.
    """
    if not engine_of(model).takes_steps_here:
        return None

    def speed(dataset: Any) -> float:
        stopwatch = _Stopwatch(seconds, clock)
        fit(model, dataset, epochs=_MANY_EPOCHS, verbose=0, shuffle=False, callbacks=[stopwatch])
        return stopwatch.per_second

    return speed


class _Stopwatch(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Counts executions of the step: of whole epochs, or of a part of the first one, after its first execution."""

    async_safe = True  # called in threads; else `fit` would wait for each step, which it does not without callbacks

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        super().__init__()
        self.per_second = 0.0
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._epoch = 0
        self._is_first_of_epoch = True
        self._ends: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keeps the number of the epoch."""
        del logs
        self._epoch, self._is_first_of_epoch = epoch, True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts, and ends `fit`."""
        del batch, logs
        with self._lock:
            if self.per_second:
                return  # `fit` has not yet heard that it is to end
            is_first, self._is_first_of_epoch = self._is_first_of_epoch, False
            self._ends.append(self._clock())
            elapsed = self._ends[-1] - self._ends[0]
            if elapsed >= self._seconds and (is_first or self._epoch == 0):
                self.per_second = (len(self._ends) - 1) / elapsed
                self.model.stop_training = True
