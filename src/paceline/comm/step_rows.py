"""What a rank keeps of its steps for ``--observe``, as rows for its files, in a bounded number; pure.

Each class takes what is new and says what is to be written: some more rows, or the file anew.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.comm.step_clock import Phase
from paceline.observe.step_files import BLOCK, ENTRY_BITS, Entry

Rows = npt.NDArray[np.int64]

MAX_ENTRIES = 160_000
"""Of single phases: those of 10,000 steps with a few messages each. At least half as many are kept, the last ones."""
MAX_BLOCKS = 2_048

_PIECE = 4_096
_KIND = (1 << ENTRY_BITS) - 1
_NUM_PHASES = len(Phase)


@dataclass(frozen=True)
class Written:
    """What is to be written."""

    rows: Rows
    is_whole: bool
    """Whether these are all rows of the file, in place of those that are there."""


class LastPhases:
    """The entries of the last steps.

    Args:
        began_at: When the phase began that ends first.
        max_entries: How many there are at most.
    """

    def __init__(self, began_at: int, max_entries: int = MAX_ENTRIES) -> None:
        self._began_at = began_at
        self._max_entries = max_entries
        self._kept: deque[Rows] = deque()
        self._num_entries = 0

    def add(self, entries: Rows) -> Written:
        """Some more."""
        is_first = not self._kept
        self._kept += [entries[first : first + _PIECE] for first in range(0, len(entries), _PIECE)]
        self._num_entries += len(entries)
        if self._num_entries <= self._max_entries and not is_first:
            return Written(entries, is_whole=False)
        while self._num_entries > self._max_entries:
            self._forget_half()
        began = np.array([self._began_at << ENTRY_BITS | Entry.BEGAN], np.int64)
        return Written(np.concatenate([began, *self._kept]), is_whole=True)

    def _forget_half(self) -> None:
        while self._num_entries > self._max_entries // 2 and self._kept:
            piece = self._kept.popleft()
            self._num_entries -= len(piece)
            ends = piece[(piece & _KIND) < _NUM_PHASES]
            self._began_at = int(ends[-1]) >> ENTRY_BITS if len(ends) else self._began_at


class Blocks:
    """Rows of sums over consecutive times, each beginning as `BLOCK` says."""

    def __init__(self) -> None:
        self._rows: list[Rows] = []
        self.scale = 1
        """How many times as long as at the beginning a block is to last."""

    def add(self, row: Rows) -> Written | None:
        """One more; None: it cannot stand beside those that are there."""
        if self._rows and len(self._rows[0]) != len(row):
            return None
        self._rows.append(row)
        if len(self._rows) < MAX_BLOCKS:
            return Written(row[None], is_whole=len(self._rows) == 1)
        rows = np.stack(self._rows)
        pairs = joined(rows[::2], rows[1::2])
        self._rows = list(pairs)
        self.scale *= 2
        return Written(pairs, is_whole=True)


def joined(first: Rows, second: Rows) -> Rows:
    """Of two times that follow each other the row of both; of many pairs at once."""
    both = first + second
    for name, since in (("first_step", first), ("last_step", second), ("began_ns", first), ("ended_ns", second)):
        both[:, BLOCK.index(name)] = since[:, BLOCK.index(name)]
    return both


class UnblockedSteps:
    """Entries that are in no block yet.

    Args:
        began_at: When the phase began that ends first.
    """

    def __init__(self, began_at: int) -> None:
        self._began_at = began_at
        self._entries = np.zeros(0, np.int64)
        self._row: Rows | None = None
        self._last_step: int | None = None

    def take(self) -> Rows | None:
        """A row of all steps that are whole since the last time; None: there is none."""
        row, self._row = self._row, None
        return row

    def add(self, entries: Rows) -> None:
        """Some more."""
        self._entries = np.concatenate([self._entries, entries])
        marks = np.flatnonzero((self._entries & _KIND) == Entry.STEP)
        if not len(marks):
            return
        entries, self._entries = self._entries[: marks[-1] + 1], self._entries[marks[-1] + 1 :]
        row = self._summed(entries)
        self._row = row if self._row is None else joined(self._row[None], row[None])[0]

    def _summed(self, entries: Rows) -> Rows:
        kinds, values = entries & _KIND, entries >> ENTRY_BITS
        steps, is_phase = values[kinds == Entry.STEP], kinds < _NUM_PHASES
        first = int(steps[0]) if self._last_step is None else self._last_step + 1
        self._last_step = int(steps[-1])
        ends = np.concatenate([[self._began_at], values[is_phase]])
        sums = np.zeros(_NUM_PHASES, np.int64)
        np.add.at(sums, kinds[is_phase], np.diff(ends))
        whole, awaited = values[kinds == Entry.FIRST], values[kinds == Entry.AWAITED]
        known = awaited >= 0
        sums[Phase.INPUT] += awaited[known].sum() - whole.sum()
        sums[Phase.COMPUTE] += (whole - awaited)[known].sum()
        sums[Phase.WHOLE] += whole[~known].sum()
        began_at, self._began_at = self._began_at, int(ends[-1])
        return np.array([first, self._last_step, began_at, self._began_at, *sums], np.int64)
