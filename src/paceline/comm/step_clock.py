"""The clock of a rank's steps: at each moment this process is in one phase of one, so the phases add up to the time.

A step is divided where Python already is:

    │ input │ count ─────────── │ compute │ messages ──────── │ compute │ messages ──────── │ update │ callbacks, …
            ▲ message 1: the rows of all ranks, with what each rank's clock has counted since its last one

How long a message takes of itself, and how long this rank waits in it for others, follows from what the clocks of all
ranks say (`step_account.py`). Reading the clock takes a quarter of a microsecond.

Who calls what, in this order:

    who                                   with a message 1                   without: one worker, RING, servers
    `timed` (`fit/step_times.py`)         begin                              begin
    hook `on_train_batch_begin`           step_begins                        step_begins
    the step, if it is traced             tracing                            tracing
    message 1, `total_and_first_row`      count_begins, count_ended          –
    other messages                        message_begins, message_ended      (over MPI)
    the next hook, or the end             step_ended                         step_ended, which tells input from compute
    callbacks, agreement, snapshot        enter, leave                       enter, leave

A pipeline has no message 1: its step says when it reads (`input_begins`, `input_ended`) and when it waits for other
stages (`others_begin`, `others_ended`), and the sum with which it ends carries the clocks (`tells`, `heard`). Under
parameter servers the chief says when it has its batches, and when it waits for workers.

There is one clock for all threads, of the one `fit` that has begun it: what another `fit` does meanwhile, in a callback
or in a thread, belongs to the phase in which it does so. Within a step Python's thread and those in which TensorFlow
calls messages take turns, so nothing is locked.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np

from paceline.comm.group import Array
from paceline.comm.process_facts import NUM_FACTS, ProcessFacts
from paceline.observe.step_files import ENTRY_BITS, Entry


class Phase(IntEnum):
    """What a rank does."""

    INPUT = 0
    """Waits for its next batch."""
    COUNT = 1
    """Is in the message with which a step begins."""
    COMPUTE = 2
    """Computes, up to the last message of the step."""
    MESSAGES = 3
    """Is in another message of the step."""
    UPDATE = 4
    """Behind the last message of the step: updates of weights."""
    CALLBACKS = 5
    AGREEMENT = 6
    """Is in the message with which ranks agree on what callbacks have decided."""
    SNAPSHOT = 7
    """Copies the state for one; writing goes on beside the steps."""
    REST = 8
    """Between steps: Keras's own loop, events."""
    START = 9
    """What comes before the first step, and whole steps that had to be traced first."""
    VALIDATION = 10
    WHOLE = 11
    """In a step of which nobody knows when its input was there."""
    OTHERS = 12
    """Waits for what others compute: other stages of a pipeline, the workers of a chief."""


_OF_STEP = frozenset([Phase.INPUT, Phase.COUNT, Phase.COMPUTE, Phase.MESSAGES, Phase.UPDATE, Phase.START, Phase.OTHERS])
_BETWEEN_STEPS = frozenset([Phase.REST, Phase.AGREEMENT])
_NUM_PHASES = len(Phase)

NUM_STEPS = _NUM_PHASES
"""Where in what a rank tells the number of its steps stands: behind the nanoseconds of each phase."""
NUM_NUMBERS = _NUM_PHASES + 1 + NUM_FACTS
"""What a rank tells the others; at last what the kernel says of the process."""

_RANKS_AT_ONCE = 64
"""Of more ranks, so many tell in each message, in turn: it stays small."""


class StepClock:
    """A process's clock. Out of a `fit` its methods may be called, too, and nobody asks for what it counts.

    Args:
        now: Nanoseconds.
        facts: What the kernel says of this process.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns, facts: ProcessFacts | None = None) -> None:
        self._now = now
        self._facts = ProcessFacts() if facts is None else facts
        self._phase = Phase.REST
        self._since = now()
        self._has_begun = False
        """Whether a `fit` is timed."""
        self._is_first = False
        """Whether the step that comes next is the first one of its `fit`."""
        self._num_steps = 0
        """Of the execution that has begun."""
        self._was_counted = False
        """Whether this execution has been in the message with which a step begins."""
        self._has_combined = False
        """Whether this step has been in another message behind that one."""
        self._knows_input = False
        """Whether this execution says itself when it has its batches."""
        self._untold = [0] * (_NUM_PHASES + 1)
        self._num_counts = 0
        """Messages with which steps have begun: the same on all ranks."""
        self._step_began_at = 0.0
        self._input_before = 0
        """Nanoseconds of input that were untold then: where nobody hears, they are never told."""
        self.input_came_at: Callable[[], float] | None = None
        """When the execution that is going on had its batch, in seconds since 1970; None: nobody knows."""
        self.hear: Callable[[int, int, Array], None] | None = None
        """Is told what ranks have told: the first of them, how many there are in the whole, and `NUM_NUMBERS` of each,
        int64. Of an execution without a first message, what this rank has told itself."""
        self.note: Callable[[int], object] | None = None
        """Is told of each phase that has ended, as `observe/step_files.py` spells entries."""

    def begin(self) -> bool:
        """A `fit` begins: what was before belongs to no step. False: another one is timed already."""
        if self._has_begun:
            return False
        self._phase = Phase.START  # for who notes phases: what was before is no part of steps
        self.switch(Phase.REST)
        self._untold = [0] * (_NUM_PHASES + 1)
        self._has_begun = self._is_first = True
        self._facts.begin()
        return True

    def end(self) -> list[int]:
        """The `fit` that has begun is over. Returns the nanoseconds of each phase that have not been told."""
        self.step_ended()
        self.switch(Phase.REST)
        self._has_begun, self.hear = False, None
        return self.untold()

    def untold(self) -> list[int]:
        """The nanoseconds of each phase, up to now, that have not been told. For calls between two steps."""
        self.switch(self._phase)
        if not self._is_first:
            return self._untold[:_NUM_PHASES]
        return [sum(self._untold) if phase is Phase.START else 0 for phase in Phase]

    def switch(self, phase: Phase) -> Phase:
        """From now on the rank is in `phase`; returns in which it was."""
        now, before = self._now(), self._phase
        self._untold[before] += now - self._since
        self._since, self._phase = now, phase
        if (note := self.note) is not None:
            note(now << ENTRY_BITS | before)
        return before

    # Context managers would be shorter, and would cost each step three times as much.

    def enter(self, phase: Phase) -> Phase | None:
        """From now on the rank is in `phase`, if it was between its steps, in no other; returns what `leave` needs."""
        return self.switch(phase) if self._phase in _BETWEEN_STEPS else None

    def leave(self, before: Phase | None) -> None:
        """The phase that has been entered, or not, is over."""
        if before is not None:
            self.switch(before)

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """While this lasts, the rank is in `phase`, as `enter` says; for what is rare."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.leave(before)

    def step_begins(self, num_steps: int = 1) -> None:
        """An execution of so many steps begins; within another phase, such as a callback, it belongs to that."""
        if self._phase is not Phase.REST:
            return
        if self._is_first:
            self._is_first = False
            self._phase = Phase.START
            self.switch(Phase.START)
            before, self._untold = sum(self._untold), [0] * (_NUM_PHASES + 1)
            self._untold[Phase.START] = before
        self._num_steps, self._was_counted, self._has_combined, self._knows_input = num_steps, False, False, False
        self._step_began_at = time.time()
        self._input_before = self._untold[Phase.INPUT]
        self.switch(Phase.INPUT)

    def step_ended(self) -> None:
        """The execution is over, or has raised, if there is one."""
        if self._phase not in _OF_STEP:
            return
        self._compute_was_update()
        was_traced = self.switch(Phase.REST) is Phase.START
        if not self._was_counted:
            if not was_traced and self._divide_input():
                self._untold[NUM_STEPS] += self._num_steps
            if (hear := self.hear) is not None:
                hear(0, 1, np.array([self._take()], np.int64))
        self.input_came_at = None

    def _compute_was_update(self) -> None:
        """What this rank has computed since the last message was behind the last message of its step."""
        if self._phase is Phase.COMPUTE and self._has_combined:
            self._phase = Phase.UPDATE

    def _divide_input(self) -> bool:
        """Of an execution without a first message all counts as input so far, up to another message.

        Returns:
            Whether there was a step: False: no batch came, as the data have ended.
        """
        if self._knows_input:
            return True
        came_at = None if self.input_came_at is None else self.input_came_at()  # reads a variable of TensorFlow's
        if came_at is not None and came_at < self._step_began_at:
            return False
        whole = self._untold[Phase.INPUT] - self._input_before
        self._untold[Phase.INPUT] = self._input_before
        if came_at is None:
            self._untold[Phase.WHOLE] += whole
            self._note_awaited(whole, -1)
            return True
        awaited = min(max(int((came_at - self._step_began_at) * 1e9), 0), whole)
        self._untold[Phase.INPUT] += awaited
        self._untold[Phase.COMPUTE] += whole - awaited
        self._note_awaited(whole, awaited)
        return True

    def _note_awaited(self, whole: int, awaited: int) -> None:
        if (note := self.note) is not None:  # another thread may take it away
            note(whole << ENTRY_BITS | Entry.FIRST)
            note(awaited << ENTRY_BITS | Entry.AWAITED)

    def tracing(self) -> None:
        """The execution that has begun is traced first: it says nothing about those to come."""
        if self._phase in _OF_STEP:
            self.switch(Phase.START)

    def input_begins(self) -> None:
        """This rank waits for another batch of the same execution."""
        if self._is_measured:
            self.switch(Phase.INPUT)

    def input_ended(self) -> None:
        """The batch that the execution has waited for is there."""
        self._knows_input = True
        if self._is_measured:
            self.switch(Phase.COMPUTE)

    def others_begin(self) -> None:
        """This rank has nothing to do until others have computed what it needs."""
        if self._is_measured:
            self.switch(Phase.OTHERS)

    def others_ended(self) -> None:
        """It goes on."""
        if self._is_measured:
            self._has_combined = True
            self.switch(Phase.COMPUTE)

    def message_begins(self) -> None:
        """This rank enters a message."""
        if self._is_measured:
            self.switch(Phase.MESSAGES)

    def message_ended(self) -> None:
        """It has left the message."""
        if self._is_measured:
            self._has_combined = True
            self.switch(Phase.COMPUTE)

    @property
    def _is_measured(self) -> bool:
        """Whether an execution is going on that is not traced first."""
        return self._phase in _OF_STEP and self._phase is not Phase.START

    @property
    def is_in_step(self) -> bool:
        """Whether a step that is timed goes on, so that what the ranks tell in its first message is heard."""
        return self._phase in _OF_STEP

    def count_begins(self, rank: int, size: int) -> Array:
        """This rank enters the message with which a step, also of a validation or a prediction, begins.

        Returns:
            What is to be summed over the ranks in it, for `count_ended`: int64, zeros out of steps that are timed.
        """
        if self._is_measured:
            self._compute_was_update()  # of another step of the same execution
            self._has_combined = False
            self.switch(Phase.COUNT)
        return self.tells(rank, size)

    def tells(self, rank: int, size: int) -> Array:
        """What is to be summed over the ranks in a message of each step, for `heard`.

        Returns:
            int64; zeros out of steps that are timed.
        """
        first = self._first(size)
        told = np.zeros((min(size - first, _RANKS_AT_ONCE), NUM_NUMBERS), np.int64)
        if self._phase in _OF_STEP and 0 <= rank - first < _RANKS_AT_ONCE:
            self.switch(self._phase)
            told[rank - first] = self._take()
        return told.reshape(-1)

    def heard(self, size: int, told: Array, *, num_steps: int) -> int | None:
        """The message has ended, with the sums over the ranks.

        Returns:
            The first of the ranks that have told something; None: out of steps that are timed.

        Args:
            size: How many ranks there are.
            told: The sums.
            num_steps: Of how many steps it was the message.
        """
        if self._phase not in _OF_STEP:
            return None
        first = self._first(size)
        self._num_counts += 1
        self._was_counted = True
        if self._is_measured:
            self._untold[NUM_STEPS] += num_steps
        if (hear := self.hear) is not None:
            hear(first, size, told.reshape(-1, NUM_NUMBERS))
        return first

    def count_ended(self, size: int, told: Array, *, takes_place: bool = True) -> int | None:
        """It has left that message, with the sums over the ranks.

        Returns:
            The first of the ranks that have told something; None: out of steps that are timed.

        Args:
            size: How many ranks there are.
            told: The sums.
            takes_place: Whether a step follows: else the data of some rank have ended.
        """
        if self._is_measured:
            self.switch(Phase.COMPUTE)
        return self.heard(size, told, num_steps=int(takes_place))

    def _take(self) -> list[int]:
        """What this rank has to tell, and has told from now on."""
        told = [*self._untold, *self._facts.since_last()]
        self._untold = [0] * (_NUM_PHASES + 1)
        return told

    def _first(self, size: int) -> int:
        """The first of the ranks whose turn it is."""
        return self._num_counts % -(-size // _RANKS_AT_ONCE) * _RANKS_AT_ONCE
