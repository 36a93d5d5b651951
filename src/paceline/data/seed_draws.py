"""How many numbers a shuffle has drawn for its iterators: a count that can be read, and set back.

TensorFlow has no operation for that, but writes the count into the state of an iterator, and sets it where a state is
put back. A reader, an iterator over one row that draws from the same generator, is for that only. Another generator
with the same seeds says which state belongs to which count:

    the shuffle's generator     … 4 draws ─► the reader's state: "4" ─► found below, at 4
    one with the same seeds     1   2   3   4   5 …    the state that a reader of it has after each draw
"""

from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from paceline.data import compat
from paceline.data.iterator_state import iterator_state, restore_iterator


class CannotBeCountedError(RuntimeError):
    """Draws cannot be told from each other; nothing has been drawn for that."""


def draws_of(shuffle: Any) -> "SeedDraws":
    """The draws of the generator that a shuffle of `has_shared_seeds` draws from; iterators over it have been made.

    Raises:
        CannotBeCountedError: chance has chosen the seeds.
    """
    if not compat.is_seeded(shuffle):
        raise CannotBeCountedError
    seeds = compat.seeds_of(shuffle)
    if seeds not in _known:
        _known[seeds] = SeedDraws(shuffle)
    return _known[seeds]


class SeedDraws:
    """The draws of one generator of seeds; get it from `draws_of`."""

    def __init__(self, shuffle: Any) -> None:
        self._again = _one_row(shuffle, compat.Seeds(shuffle))
        self._model = fresh = iter(self._again)
        self._numbers: dict[bytes, int] = {}
        self._states: list[Any] = []
        self._note()
        self._reader = iter(_one_row(shuffle, compat.seeds_of(shuffle)))  # draws
        drawn = _state(self._reader)
        while _state(fresh).tobytes() != drawn.tobytes():
            fresh = iter(self._again)
            self._note()
        self.number = len(self._states) - 1

    @property
    def number(self) -> int:
        """Draws so far. To be set to at least 1, by whoever knows that nobody draws at the same time."""
        found = _state(self._reader).tobytes()
        while found not in self._numbers:
            iter(self._again)
            self._note()
        return self._numbers[found]

    @number.setter
    def number(self, number: int) -> None:
        restore_iterator(self._reader, self._states[number - 1])

    def _note(self) -> None:
        self._states.append(_state(self._model))
        self._numbers[self._states[-1].tobytes()] = len(self._states)


def _one_row(shuffle: Any, seeds: compat.Seeds) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    row = tf.data.Dataset.range(1).with_options(options)
    return compat.shuffled_alike(row, shuffle, seeds=seeds, buffer_size=1)  # the state tells of each place of a buffer


def _state(iterator: Any) -> Any:
    return iterator_state(iterator, ignores_state_outside=True)


_known: WeakKeyDictionary[compat.Seeds, SeedDraws] = WeakKeyDictionary()
