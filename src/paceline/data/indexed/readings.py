"""Which epoch of a source with an index an iterator reads: a number that snapshots contain.

    iterators, as they are first read     0     1     2          the order of an epoch follows from its number,
    `.repeat()`, read twice, then another 0 1   2                and what has been read of it from the batch

How far TensorFlow reads ahead does not count: an epoch of a repeated dataset has begun when a step has asked for it.
Where a data worker shuffles, the number is that of an iterator, read or not (`MadeIterators`).
"""

import threading
from typing import Any

import numpy as np

NOT_SHUFFLED = -1
"""The number of all sources that `fit` makes itself: which epoch is read does not matter to them."""


class _Shared:
    """What ranks count alike."""

    def __init__(self) -> None:
        self.num_sources = 0
        self.next_epochs: dict[int, int] = {}


_shared = _Shared()
_lock = threading.Lock()


def next_epochs() -> list[list[int]]:
    """Of each source, by its number in the order in which the script makes them, the epoch that begins next."""
    with _lock:
        return [[number, epoch] for number, epoch in sorted(_shared.next_epochs.items())]


def set_next_epochs(epochs: list[list[int]]) -> None:
    """What `next_epochs` has returned in another run of the script; sources that have not been made yet included."""
    with _lock:
        _shared.next_epochs = {number: epoch for number, epoch in epochs}  # noqa: C416  # lists, from JSON


def number_of_new_source() -> int:
    """A source is being made."""
    with _lock:
        _shared.num_sources += 1
        return _shared.num_sources - 1


class MadeIterators:
    """Which of the iterators over one dataset, of those that were made, is read: a shuffle draws seeds for each.

    Keras makes one at the end of each epoch of known length, too, and reads nothing of it.

    Args:
        source: The number of the source.
        repeats: Epochs that an iterator reads; negative: without end.
    """

    def __init__(self, source: int, repeats: int = 1) -> None:
        self._source = source
        self._repeats = max(repeats, 1)
        self._made: int | None = None
        """The number of the newest iterator; None: nobody has told of it."""
        self._first_batch = 0
        self._num_asked: int | None = None
        """Batches of it that steps have asked for; None: it has not been read, or nobody counts."""
        self._num_asked_before: int | None = None

    @property
    def num_asked(self) -> int | None:
        """Batches of the last iterator that was read for which steps have asked; None: nobody counts."""
        return self._num_asked_before if self._num_asked is None else self._num_asked

    @property
    def num_asked_before(self) -> int | None:
        """The same, while the newest iterator begins."""
        return self._num_asked_before

    def new_iterator(self) -> None:
        """One is about to be made."""
        with _lock:
            self._made, self._first_batch = self._next(), 0
        if self._num_asked is not None:
            self._num_asked, self._num_asked_before = None, self._num_asked

    def begin_at(self, batch: int) -> None:
        """The newest iterator goes on behind so many batches."""
        self._first_batch = batch

    def ask_for(self, num_batches: int) -> None:
        """Steps have asked for so many batches of the newest iterator."""
        self._num_asked = num_batches

    def begin(self) -> tuple[int, int]:
        """Called when an iterator is first read: its number, and the batch that it begins with."""
        with _lock:
            made = self._next() if self._made is None else self._made
            self._made = None
        batch, self._first_batch = self._first_batch, 0
        return made, batch

    @property
    def is_counted(self) -> bool:
        """Whether steps are counted as they ask for batches."""
        return self._num_asked is not None

    def _next(self) -> int:
        made = _shared.next_epochs.get(self._source, 0)
        _shared.next_epochs[self._source] = made + self._repeats
        return made


class EpochReading:
    """What the iterators over one dataset read, one after the other.

    Args:
        source: The number of the source.
        num_batches: Of an epoch.
        repeats: Epochs that an iterator reads; negative: without end.
    """

    def __init__(self, source: int, num_batches: int, repeats: int = 1) -> None:
        self._source = source
        self._num_batches = max(num_batches, 1)
        self._repeats = repeats
        self._epoch: int | None = None
        """In which the newest iterator began; None: it has not been read."""
        self._num_asked = 0
        self._due: tuple[int, int] | None = None

    def new_iterator(self) -> None:
        """One is about to be made."""
        self._epoch, self._num_asked = None, 0

    def begin_at(self, batch: int) -> None:
        """The next iterator goes on behind so many batches of an iterator that would have begun now."""
        with _lock:
            self._due = _shared.next_epochs.get(self._source, 0), batch

    def ask_for(self, num_batches: int) -> None:
        """Steps have asked for so many batches of the newest iterator."""
        with _lock:
            self._num_asked = num_batches
            if self._epoch is not None:
                self._count(self._epoch)

    def begin(self) -> tuple[Any, Any]:
        """Called by TensorFlow when an iterator is first read: its epoch, and the batch that it begins with; int64."""
        with _lock:
            epoch, batch = self._due or (_shared.next_epochs.get(self._source, 0), 0)
            self._due, self._epoch = None, epoch
            # In a loop of the script's own, nobody says what steps ask for.
            self._num_asked = max(self._num_asked or self._repeats * self._num_batches, batch)
            self._count(epoch)
        return np.int64(epoch), np.int64(batch)

    def _count(self, first: int) -> None:
        begun = first + max(1, -(-self._num_asked // self._num_batches))
        _shared.next_epochs[self._source] = max(_shared.next_epochs.get(self._source, 0), begun)
