"""The chief says where the time of a `fit` goes: a line an epoch, which rank the others wait for, and a sum at the end.

Each is an event, too, of which also short epochs and a `fit` that shows nothing (``verbose=0``) have one.

The numbers come with the message with which each step begins (`comm/step_clock.py`), in a pipeline with that with which
it ends. Over RING and NCCL, under parameter servers and with one worker the chief knows its own steps only.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from paceline.comm.group import Array
from paceline.comm.step_account import StepAccount, Totals
from paceline.comm.step_clock import Phase, StepClock
from paceline.comm.world import current_world
from paceline.events.bus import bus
from paceline.events.worker_events import StepsTimed, StragglerFound, TimeSpent
from paceline.fit.auto_shares import auto_shares_of
from paceline.fit.engine import engine_of
from paceline.fit.run import Run
from paceline.fit.step_words import (
    line_of_epoch,
    line_of_fit,
    line_of_straggler,
    shares_of,
    spent_by_word,
    straggler_in,
)

_LOGGER = logging.getLogger("paceline")

_QUIET_SECONDS = 2.0
"""Epochs that are shorter share a line, and a shorter `fit` has none: who runs a hundred of them wants no lines."""

_TELLING_SECONDS = 1.0
"""Between two `TimeSpent`: what the chief had not told when it died stays undivided in the account of the job."""

_JUDGED_STEPS = 20
"""So many at once say who is slow."""


@contextmanager
def timed(run: Run) -> Iterator[None]:
    """Around a call of `fit`, `evaluate` or `predict`."""
    of_model = engine_of(run.model).world
    world = of_model or current_world()
    sharing = None if of_model is None else auto_shares_of(of_model)
    clock = world.clock
    clock.step_ended()  # one that has found no data
    if run.method != "fit" or run.parent is not None or not clock.begin():
        with clock.during(Phase.VALIDATION):
            yield
        return
    record = None if world.recorder is None else world.recorder.waited
    words = partial(engine_of(run.model).words_of_steps, run.model)
    run.step_times = StepTimes(world.rank, clock, record, words, world.host_of) if world.is_chief else None
    clock.hear = None if run.step_times is None else run.step_times.hear
    untold: list[int] = []
    try:
        with nullcontext() if sharing is None else sharing.during_fit(run):
            yield
    finally:
        untold = clock.end()
    if run.step_times is not None:
        run.step_times.ended([nanoseconds / 1e9 for nanoseconds in untold])


def hook_ended(hook: str, callbacks: Any) -> None:
    """A hook of all callbacks of a list has been called."""
    run = Run.of_fit(getattr(callbacks, "_model", None))
    if run is None or run.step_times is None:
        return
    if hook == "on_epoch_end":
        run.step_times.epoch_ended(is_shown=bool((callbacks.params or {}).get("verbose")))
    elif hook == "on_epoch_begin":
        run.step_times.epoch_begun()
    elif hook in ("on_train_batch_end", "on_test_batch_end"):
        run.step_times.batch_ended()


class StepTimes:
    """Of one `fit`, on the chief.

    Args:
        rank: The chief's.
        clock: The chief's.
        record: Is told of each few steps, too.
        words: What the engine adds to a line about steps.
        host_of: The host of a rank; empty: all are on one.
    """

    def __init__(
        self,
        rank: int,
        clock: StepClock,
        record: Callable[[Totals], None] | None = None,
        words: Callable[[Totals], str] | None = None,
        host_of: Callable[[int], str] | None = None,
    ) -> None:
        self._rank = rank
        self._host_of = host_of or (lambda _: "")
        self._words = words or (lambda _: "")
        self._clock = clock
        self._began_at = self._said_at = time.monotonic()
        self._record = record
        self._account = StepAccount(1)
        self._epoch = Totals(1)
        self._since_line = Totals(1)
        self._all = Totals(1)
        self._latest = Totals(1)
        """Of the few steps that the next judgement is about."""
        self._facts = self._latest.facts
        """What each rank has last told that the kernel says."""
        self._suspected: tuple[int, Phase] | None = None
        """The rank that the others have waited for lately, and for what."""
        self._named: tuple[int, Phase] | None = None
        """The one that was named last."""
        self._is_shown = True
        self._told_at: float | None = None
        """When `TimeSpent` was told after a batch."""

    def hear(self, first: int, num_ranks: int, told: Array) -> None:
        """See `StepClock.hear`. It may be called in any thread, between two steps or in one."""
        if num_ranks != self._account.num_ranks:
            self._account = StepAccount(num_ranks)
            self._epoch, self._since_line = Totals(num_ranks), Totals(num_ranks)
            self._all, self._latest = Totals(num_ranks), Totals(num_ranks)
            self._facts = self._latest.facts
        if self._account.hear(first, told):
            self._settle()

    def epoch_begun(self) -> None:
        """The first one follows what a restart costs, and has a sum of its own."""
        if self._told_at is None:
            self._tell_spent()

    def batch_ended(self) -> None:
        """A step has ended, or one of a validation."""
        now = time.monotonic()
        if self._told_at is None or now - self._told_at >= _TELLING_SECONDS:
            self._told_at = now
            self._tell_spent()

    def _tell_spent(self, untold: Sequence[float] | None = None) -> None:
        self._settle()
        if untold is None:
            untold = [nanoseconds / 1e9 for nanoseconds in self._clock.untold()]
        bus.emit(TimeSpent(self._rank, spent_by_word(self._all, untold)))

    def epoch_ended(self, *, is_shown: bool) -> None:
        """Says the line of the epochs since the last one, if they took long.

        Args:
            is_shown: Whether Keras shows anything of this `fit`.
        """
        self._is_shown = is_shown
        self._settle()
        self._emit(self._epoch, self._line(self._epoch))
        self._epoch = Totals(self._account.num_ranks)
        now = time.monotonic()
        if now - self._said_at < _QUIET_SECONDS:
            return
        if is_shown and (line := self._line(self._since_line)):
            _LOGGER.info("%s", line)
        self._said_at = now
        self._since_line = Totals(self._account.num_ranks)

    def ended(self, untold: Sequence[float]) -> None:
        """The `fit` is over.

        Args:
            untold: Seconds in each phase that this rank's clock has counted and not told.
        """
        self._tell_spent(untold)
        seconds = time.monotonic() - self._began_at
        line = line_of_fit(self._all, seconds, untold) + self._words(self._all)
        self._emit(self._all, line, is_whole_fit=True)
        if self._is_shown and seconds >= _QUIET_SECONDS:
            _LOGGER.info("%s", line)

    def _line(self, totals: Totals) -> str:
        line = line_of_epoch(totals)
        return line + self._words(totals) if line else ""

    def _emit(self, totals: Totals, line: str, *, is_whole_fit: bool = False) -> None:
        if totals.num_steps and totals.seconds:
            shares, per_step = shares_of(totals), totals.seconds / totals.num_steps
            told = shares.by_word, shares.waits_for, is_whole_fit, line
            bus.emit(StepsTimed(self._rank, totals.num_steps, per_step, *told))

    def _settle(self) -> None:
        latest = self._account.settled()
        if self._record is not None and latest.num_ranks > 1:
            self._record(latest)
        for totals in (self._epoch, self._since_line, self._all, self._latest):
            totals.add(latest)
        if self._latest.num_steps >= _JUDGED_STEPS:
            self._judge()

    def _remember_facts(self) -> None:
        """Of ranks that have told none in these steps, those of before stand."""
        have_told = self._latest.facts.any(axis=1, keepdims=True)
        self._facts = self._latest.facts = np.where(have_told, self._latest.facts, self._facts)

    def _judge(self) -> None:
        self._remember_facts()
        slow, self._latest = straggler_in(self._latest), Totals(self._account.num_ranks)
        before, self._suspected = self._suspected, None if slow is None else (slow.rank, slow.phase)
        # Twice in a row: on a busy machine any rank is late for a while.
        is_explained = slow is not None and (bool(slow.reason) or not slow.is_busy)  # the kernel is asked once a second
        if slow is not None and is_explained and self._suspected == before and before != self._named:
            self._named = before
            line = line_of_straggler(slow, self._host_of(slow.rank))
            bus.emit(StragglerFound(self._rank, slow.rank, slow.ratio, slow.share, slow.reason, line))
            _LOGGER.warning("%s", line)
