"""Evaluates the newest weights of a directory, again and again.

look ─► newer than the last ones? ─► load ─► other weights than the last? ─► evaluate ─► line, points
 ▲         │ no                       │ gone, or half-written: the next older ones, or again
 └─ pause ◄┘ final, or the job has ended: over
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from paceline.evaluation.evaluation_log import Evaluation, EvaluationLog, plain_metrics
from paceline.evaluation.weight_source import Moment, NotReadableError, Weights, WeightSource
from paceline.fit.files.model_files import checksum

_LOGGER = logging.getLogger("paceline")

LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
_MAX_TRIES = 5
"""For weights that cannot be read; then those before them count as the newest."""


class Follower:
    """Follows one directory.

    Weights that come while others are being evaluated are passed over, but for the newest: an evaluator that is slow,
    or late, evaluates less often, and is never behind.

    Args:
        source: The directory.
        model: Gets the weights.
        evaluate: Gives its metrics.
        log: Where they are written, and where it stands which have been evaluated.
        fit_call: For the log; None: not known.
        clock: Seconds since 1970.
        sleep: For so many seconds.
    """

    def __init__(
        self,
        source: WeightSource,
        model: Any,
        evaluate: Callable[[], dict[str, Any]],
        log: EvaluationLog,
        fit_call: int | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._model = model
        self._evaluate = evaluate
        self._log = log
        self._fit_call = fit_call
        self._clock = clock
        self._sleep = sleep
        written = log.written()
        self._done = {(one.name, one.stamp) for one in written}
        self._last_checksum = written[-1].weights if written and written[-1].fit_call == fit_call else ""
        self._newest_done: tuple[float, ...] = ()
        self._tries = Counter[Weights]()

    def follow(self, is_over: Callable[[Weights | None], bool], has_ended: Callable[[], bool]) -> Weights | None:
        """Evaluates until nothing more is to come; returns the last weights; None: there were none.

        Args:
            is_over: Whether the newest weights, which are evaluated, are the last ones; None: there are none.
            has_ended: Whether whoever writes the weights is gone: then those that lie there are the last.
        """
        while True:
            nothing_follows = has_ended()  # before the look: what comes between is seen
            newest = self.evaluate_newest()
            if nothing_follows or is_over(newest):
                return newest
            look_at = time.monotonic() + LOOK_SECONDS
            while time.monotonic() < look_at and not has_ended():
                self._sleep(_PAUSE_SECONDS)

    def evaluate_newest(self) -> Weights | None:
        """Evaluates the newest readable weights, unless that is done; returns them; None: there are none."""
        for weights in self._source.found():
            if weights.order <= self._newest_done or (weights.name, weights.stamp) in self._done:
                return weights
            if self._tries[weights] >= _MAX_TRIES:
                continue
            try:
                moment = self._source.load(weights, self._model)
            except NotReadableError as fault:
                self._tries[weights] += 1
                if self._tries[weights] == _MAX_TRIES:
                    _LOGGER.warning("%s is not evaluated, because it cannot be read: %s", weights.name, fault)
                continue
            self._evaluate_loaded(weights, moment)
            self._newest_done = weights.order
            self._done.add((weights.name, weights.stamp))
            return weights
        return None

    def _evaluate_loaded(self, weights: Weights, moment: Moment) -> None:
        of_weights = checksum(self._model.weights)
        if of_weights == self._last_checksum:  # the end of a `fit` after its last step, or a step that was made again
            return
        began_at = time.monotonic()
        metrics = plain_metrics(self._evaluate())
        seconds = time.monotonic() - began_at
        self._log.write(
            Evaluation(
                time=self._clock(),
                fit_call=self._fit_call,
                step=moment.step,
                epoch=moment.epoch,
                name=weights.name,
                stamp=weights.stamp,
                weights=of_weights,
                seconds=seconds,
                metrics=metrics,
            )
        )
        self._last_checksum = of_weights
        _LOGGER.info("evaluated %s: %s (%.1f s)", _named(weights, moment), _shown(metrics), seconds)


def _named(weights: Weights, moment: Moment) -> str:
    if moment.step is None:
        return weights.name
    epoch = "" if moment.epoch is None else f", epoch {moment.epoch + 1}"
    return f"step {moment.step}{epoch} ({weights.name})"


def _shown(metrics: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {f'{value:.6g}' if isinstance(value, float) else value}" for name, value in metrics.items()
    )
