"""The clock of a rank's steps: at each moment this process is in one phase of one, so the phases add up to the time.

A step is divided where Python already is:

    │ input │ count ─────────── │ compute │ messages ──────── │ compute │ messages ──────── │ update │ callbacks, …
            ▲ message 1: the rows of all ranks, with what each rank's clock has counted since its last one

How long a message takes of itself, and how long this rank waits in it for others, follows from what the clocks of all
ranks say (`step_account.py`). Reading the clock takes a quarter of a microsecond.

Python's thread and those in which TensorFlow calls messages take turns within a step, so nothing is locked.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np

from paceline.comm.group import Array
from paceline.comm.process_facts import NUM_FACTS, ProcessFacts


class Phase(IntEnum):
    """What a rank does."""

    INPUT = 0
    """Waits for its next batch."""
    COUNT = 1
    """Is in the message with which a step begins."""
    COMPUTE = 2
    """Computes, up to the last message of the step."""
    MESSAGES = 3
    """Is in another message."""
    UPDATE = 4
    """Behind the last message of the step: updates of weights."""
    CALLBACKS = 5
    SNAPSHOT = 6
    """Copies the state for one; writing goes on beside the steps."""
    REST = 7
    """Between steps: Keras's own loop, events."""
    START = 8
    """What comes before the first step, and whole steps that had to be traced first."""
    VALIDATION = 9
    WHOLE = 10
    """In a step of which nobody knows when its input was there."""


_OF_STEP = frozenset([Phase.INPUT, Phase.COUNT, Phase.COMPUTE, Phase.MESSAGES, Phase.START])
_NUM_PHASES = len(Phase)
NUM_NUMBERS = _NUM_PHASES + NUM_FACTS
"""What a rank tells the others: nanoseconds in each phase, and what the kernel says of the process."""

_RANKS_AT_ONCE = 64
"""Of more ranks, so many tell in each message, in turn: it stays small."""


class StepClock:
    """A process's clock. Its methods may be called at any time; out of a `fit` nobody asks for what it counts.

    Args:
        now: Nanoseconds.
        facts: What the kernel says of this process.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns, facts: ProcessFacts | None = None) -> None:
        self._now = now
        self._facts = ProcessFacts() if facts is None else facts
        self._phase = Phase.REST
        self._since = now()
        self._is_in_step = False
        self._is_first = True
        """Whether the step that comes next is the first one of its `fit`."""
        self._was_counted = False
        """Whether this execution has been in the message with which a step begins."""
        self._has_combined = False
        """Whether this step has been in another message behind that one."""
        self._untold = [0] * _NUM_PHASES
        self._num_messages = 0
        self._step_began_at = 0.0
        self.input_came_at: Callable[[], float] | None = None
        """When the newest step without a first message had its batch, in seconds since 1970; None: nobody knows."""
        self.hear: Callable[[int, int, Array], None] | None = None
        """Is told what ranks have told in a message: the first of them, how many there are in the whole, and
        `NUM_NUMBERS` of each, int64. Of an execution without such a message, what this rank has told itself."""

    def switch(self, phase: Phase) -> Phase:
        """From now on the rank is in `phase`; returns in which it was."""
        now, before = self._now(), self._phase
        self._untold[before] += now - self._since
        self._since, self._phase = now, phase
        return before

    def enter(self, phase: Phase) -> bool:
        """From now on the rank is in `phase`, if it was between its steps, and in no other; whether that is so."""
        if self._phase is not Phase.REST:
            return False
        self.switch(phase)
        return True

    def leave(self, has_entered: bool) -> None:
        """The phase that has been entered, or not, is over."""
        if has_entered:
            self.switch(Phase.REST)

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """While this lasts, the rank is in `phase`, as `enter` says; for what is rare."""
        has_entered = self.enter(phase)
        try:
            yield
        finally:
            self.leave(has_entered)

    def begin(self) -> None:
        """A `fit` begins: what was before belongs to no step."""
        self.switch(Phase.REST)
        self._untold = [0] * _NUM_PHASES
        self._is_in_step, self._is_first = False, True
        self._facts.begin()
        self.input_came_at = None

    # A context manager would be shorter, and would cost each step three times as much.

    def step_begins(self) -> None:
        """An execution of the step begins; within another phase, such as a callback, it belongs to that."""
        if self._phase is not Phase.REST:
            return
        self._is_in_step, self._was_counted, self._has_combined = True, False, False
        if self._is_first:
            self._is_first = False
            self.switch(Phase.START)
            started = sum(self._untold)
            self._untold = [0] * _NUM_PHASES
            self._untold[Phase.START] = started
        self._step_began_at = time.time()
        self.switch(Phase.INPUT)

    def step_ended(self) -> None:
        """The execution is over, or has raised, if there is one."""
        if self._phase not in _OF_STEP:
            return
        if self._phase is Phase.COMPUTE and self._has_combined:
            self._phase = Phase.UPDATE
        self._is_in_step = False
        self.switch(Phase.REST)
        if not self._was_counted:
            self._book_input()
            if self.hear is not None:
                self.hear(0, 1, np.array([self._take()], np.int64))

    def _book_input(self) -> None:
        """Divides an execution without a first message, all of which counts as input so far."""
        whole, self._untold[Phase.INPUT] = self._untold[Phase.INPUT], 0
        if self.input_came_at is None:
            self._untold[Phase.WHOLE] += whole
            return
        awaited = min(max(int((self.input_came_at() - self._step_began_at) * 1e9), 0), whole)
        self._untold[Phase.INPUT] = awaited
        self._untold[Phase.COMPUTE] += whole - awaited

    def tracing(self) -> None:
        """The step that has begun is traced first: it says nothing about those to come."""
        if self._is_in_step:
            self._is_in_step = False
            self.switch(Phase.START)

    def message_begins(self) -> None:
        """This rank enters a message of the step."""
        if self._is_in_step:
            self.switch(Phase.MESSAGES)

    def message_ended(self) -> None:
        """It has left the message."""
        if self._is_in_step:
            self._has_combined = True
            self.switch(Phase.COMPUTE)

    def count_begins(self, rank: int, size: int) -> Array:
        """This rank enters the message with which a step begins.

        Returns:
            What is to be summed over the ranks in it, for `count_ended`: int64.
        """
        if self._is_in_step:
            if self._phase is Phase.COMPUTE and self._has_combined:  # behind another step of the same execution
                self._phase = Phase.UPDATE
            self._has_combined = False
            self.switch(Phase.COUNT)
        first = self._first(size)
        told = np.zeros((min(size - first, _RANKS_AT_ONCE), NUM_NUMBERS), np.int64)
        if 0 <= rank - first < _RANKS_AT_ONCE:
            told[rank - first] = self._take()
        return told.reshape(-1)

    def count_ended(self, size: int, told: Array) -> None:
        """It has left that message, with the sums over the ranks."""
        first = self._first(size)
        self._num_messages += 1
        self._was_counted = True
        if self._is_in_step:
            self.switch(Phase.COMPUTE)
        if self.hear is not None:
            self.hear(first, size, told.reshape(-1, NUM_NUMBERS))

    def _take(self) -> list[int]:
        """What this rank has to tell, and has told from now on."""
        told = [*self._untold, *self._facts.since_last()]
        self._untold = [0] * _NUM_PHASES
        return told

    def _first(self, size: int) -> int:
        """The first of the ranks whose turn it is."""
        return self._num_messages % -(-size // _RANKS_AT_ONCE) * _RANKS_AT_ONCE
