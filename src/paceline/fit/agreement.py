"""Decisions of callbacks (stop, learning rate) take effect on all ranks at the same step.

    rank 0   callbacks run ─┐
    rank 1   callbacks run ─┴► stop? new learning rate? StopIteration? ─► the same answer on all ranks ─► next step

Callbacks run on every rank and see the same logs, so they mostly agree. One that looks at something else (a clock, a
file, a random number) may not: then whoever wants to stop stops all, and the learning rate that a rank has changed is
everybody's (the lowest such rank's). With ``--strict`` the callback that disagreed is named instead.

After each batch the ranks meet only if some rank has a callback with something to say there; then one message of a
few numbers tells each whether all have decided the same. It is not a part of the next step's count of rows: a rank
learns that count after it has taken the step's batch from the data, which one worker that stops here has not.
"""

import logging
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from paceline.cluster import job_options
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.comm.group import Group, Reduction
from paceline.comm.script_lines import lines_of_ranks
from paceline.errors import DesynchronizedError
from paceline.fit.engine import engine_of

_LOGGER = logging.getLogger("paceline")

_STOPS = ("stop_training", "stop_evaluating", "stop_predicting")
_ENDED, _CHANGED_RATE, _RATE = range(len(_STOPS), len(_STOPS) + 3)
_NO_RATE = -1
"""No learning rate, beside the bits of one."""

BATCH_HOOKS = (
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_test_batch_begin",
    "on_test_batch_end",
    "on_predict_batch_begin",
    "on_predict_batch_end",
)
EPOCH_HOOKS = ("on_epoch_begin", "on_epoch_end")
BEGIN_HOOKS = ("on_train_begin", "on_test_begin", "on_predict_begin")


class Agreement:
    """The ranks' agreement on what the callbacks of one list decide.

    Args:
        callbacks: The list (`keras.callbacks.CallbackList`).
        group: Among the ranks that train the list's model.
    """

    def __init__(self, callbacks: Any, group: Group) -> None:
        self._callbacks = callbacks
        self._group = group
        self._strict = read_variables(JobOptions, os.environ, "strict").strict
        self._rate = self._current_rate()
        self._said: set[int] = set()
        own = np.array([_has_own(callbacks.callbacks, hook) for hook in BATCH_HOOKS], np.int8)
        [watched] = group.all_reduce([own], Reduction.MAX)
        self._watched = {hook for hook, is_watched in zip(BATCH_HOOKS, watched, strict=True) if is_watched}
        for kind in {hook.split("_")[1] for hook in self._watched}:
            setattr(callbacks, f"_async_{kind}", False)  # what callbacks decide must be known when ranks meet
        self._watched.update(EPOCH_HOOKS, BEGIN_HOOKS)

    def watches(self, hook: str) -> bool:
        """Whether the ranks meet after this hook."""
        return hook in self._watched

    def run(self, hook: str, call: Callable[[], None]) -> None:
        """Runs the callbacks' `hook` and agrees on what they have decided. Collective.

        Args:
            hook: Its name.
            call: Calls it of all callbacks that are in the list.

        Raises:
            StopIteration: a callback of some rank raised it; on all ranks.
            DesynchronizedError: callbacks disagreed, and PACELINE_STRICT is 1.
        """
        ended, culprit = self._called_one_by_one(call) if self._strict else (_called(call), "")
        if self._agree(hook, self._decisions(ended is not None), culprit):
            raise ended or StopIteration(f"a callback of another rank ended {hook}")

    def compare_first_epochs(self) -> None:
        """Stops the job if ranks have restored different epochs. Collective.

        Raises:
            DesynchronizedError: with each rank's epoch.
        """
        own = getattr(self._callbacks.model, "_initial_epoch", None) or 0
        epochs = np.concatenate(self._group.all_gather(np.array([own], np.int64))).tolist()
        if len(set(epochs)) > 1:
            raise DesynchronizedError(
                f"the ranks would resume at different epochs: {', '.join(map(str, epochs))} on ranks 0 to "
                f"{len(epochs) - 1}. Give BackupAndRestore a directory that all ranks share. "
                f"{lines_of_ranks(self._group)} [backup-differs]"
            )

    def _called_one_by_one(self, call: Callable[[], None]) -> tuple[StopIteration | None, str]:
        """As `_called`, with one callback in the list at a time; and who was the first to decide something."""
        everyone, before = self._callbacks.callbacks, self._decisions(ended=False)
        ended, culprit = None, ""
        try:
            for callback in everyone:
                self._callbacks.callbacks = [callback]
                ended = _called(call) or ended
                if not culprit and not np.array_equal(before, self._decisions(ended is not None)):
                    culprit = type(callback).__name__
        finally:
            self._callbacks.callbacks = everyone
        return ended, culprit

    def _decisions(self, ended: bool) -> npt.NDArray[np.int64]:
        """What this rank has decided; the learning rate by its bits, which compare alike on all ranks, also as NaN."""
        model = self._callbacks.model
        rate = self._current_rate()
        stops = [bool(getattr(model, name, False)) for name in _STOPS]
        bits = _NO_RATE if rate is None else int(np.float64(rate).view(np.int64))
        return np.array([*stops, ended, rate is not None and rate != self._rate, bits], np.int64)

    def _agree(self, hook: str, own: npt.NDArray[np.int64], culprit: str) -> bool:
        highest, lowest_inverted = self._group.all_reduce([own, ~own], Reduction.MAX)
        if np.array_equal(highest, own) and np.array_equal(lowest_inverted, ~own):
            if own[_CHANGED_RATE]:
                self._rate = _rates(own[None])[0]
            return bool(own[_ENDED])
        everyones = np.concatenate(self._group.all_gather(own[None]))
        wanted = everyones[:, :_RATE].max(axis=0)
        same = (everyones[:, :_RATE] == wanted).all() and len(np.unique(everyones[:, _RATE])) == 1
        if not same:
            self._report(hook, everyones, culprit)
        for index, name in enumerate(_STOPS):
            if wanted[index] and not own[index]:
                setattr(self._callbacks.model, name, True)
        if wanted[_CHANGED_RATE]:
            self._rate = _rates(everyones)[int(everyones[:, _CHANGED_RATE].argmax())]
            variable = _rate_variable(self._callbacks.model)
            if variable is not None and float(variable.numpy()) != self._rate:
                variable.assign(self._rate)
        return bool(wanted[_ENDED])

    def _report(self, hook: str, everyones: Any, culprit: str) -> None:
        different = (everyones[:, :_RATE] != everyones[0, :_RATE]).any(axis=0)
        what = int(different.argmax()) if different.any() else _CHANGED_RATE  # all have changed it, to other rates
        ranks = ", ".join(str(rank) for rank in np.flatnonzero(everyones[:, what]))
        names = (
            *_STOPS,
            "StopIteration",
            f"the learning rate ({', '.join(f'{rate:g}' for rate in _rates(everyones))})",
        )
        who = f"only rank(s) {ranks} decided so" if different.any() else "each rank has set its own"
        message = f"callbacks disagree between ranks in {hook} about {names[what]}: {who}"
        if self._strict:
            raise DesynchronizedError(
                f"{message}, by {self._names(culprit, everyones[:, what])}. {lines_of_ranks(self._group)} "
                "[callbacks-differ]"
            )
        if self._group.rank == 0 and what not in self._said:
            self._said.add(what)
            _LOGGER.warning(
                "%s; the decision takes effect on all ranks. With %s=1 the job stops here instead and names the "
                "callback.",
                message,
                job_options.STRICT,
            )

    def _names(self, culprit: str, decided: Any) -> str:
        mine = np.frombuffer(culprit.encode(), np.uint8)
        theirs = [name.tobytes().decode() for name in self._group.all_gather(mine)]
        return ", ".join(f"{theirs[rank] or 'no callback'} (rank {rank})" for rank in np.flatnonzero(decided))

    def _current_rate(self) -> float | None:
        variable = _rate_variable(self._callbacks.model)
        return None if variable is None else float(variable.numpy())


def _rates(decisions: npt.NDArray[Any]) -> list[float]:
    """The learning rate of each rank's decisions; NaN without one."""
    rates: list[float] = np.ascontiguousarray(decisions[:, _RATE]).view(np.float64).tolist()
    return rates


def _called(call: Callable[[], None]) -> StopIteration | None:
    """Calls a hook; returns what a callback raised to end the loop."""
    try:
        call()
    except StopIteration as error:
        return error
    return None


def agreement_of(callbacks: Any, model: Any) -> Agreement | None:
    """A new agreement on what the callbacks of a list decide; None where no other rank takes its model's steps.

    Collective.

    Args:
        callbacks: The list.
        model: The list's, if it has one.
    """
    group = engine_of(model).group
    return None if group is None or group.size == 1 else Agreement(callbacks, group)


def _has_own(callbacks: Any, hook: str) -> bool:
    """Whether a callback that may decide something has its own `hook`."""
    names = (hook, hook.replace("_train", "")) if "_train" in hook else (hook,)
    return any(
        not getattr(getattr(callback, name, None), "_is_default", False)
        for callback in callbacks
        if not isinstance(callback, keras.callbacks.ProgbarLogger | keras.callbacks.History)
        and not getattr(callback, "same_on_all_ranks", False)
        for name in names
    )


def _rate_variable(model: Any) -> Any:
    """The optimizer's learning rate where it is a variable; None for a schedule, or without an optimizer."""
    rate = getattr(getattr(model, "optimizer", None), "learning_rate", None)
    return rate if isinstance(rate, keras.Variable) else None
