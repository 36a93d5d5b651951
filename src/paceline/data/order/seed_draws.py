"""How many numbers a shuffle has drawn for its iterators: a count that can be read, and set back.

TensorFlow has no operation for that, but writes the count into the state of an iterator, and sets it where a state is
put back. A reader, an iterator over one row that draws from the same generator, is for that only. Another generator
with the same seeds says which state belongs to which count:

    the shuffle's generator     … 4 draws ─► the reader's state: "4" ─► found below, at 4
    one with the same seeds     1   2   3   4   5 …    the state that a reader of it has after each draw
"""

from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.order.iterator_state import iterator_state, restore_iterator


def draws_of(shuffle: Any) -> "SeedDraws":
    """The draws of the generator that a shuffle of `has_shared_seeds` draws from, whose seeds chance has not chosen."""
    assert compat.is_seeded(shuffle), "draws cannot be told from each other"
    seeds = compat.seeds_of(shuffle)
    if seeds.draws is None:
        seeds.draws = SeedDraws(shuffle, seeds)
    draws: SeedDraws = seeds.draws
    return draws


class SeedDraws:
    """The draws of one generator of seeds; get that of a shuffle from `draws_of`.

    Args:
        shuffle: Draws from it, or from one with the same seeds.
        seeds: The generator.
        like: The draws of the one with the same seeds, if they are known.
    """

    def __init__(self, shuffle: Any, seeds: compat.Seeds, like: "SeedDraws | None" = None) -> None:
        self._states: _States = _States(shuffle) if like is None else like._states
        self._reader = iter(_one_row(shuffle, seeds))  # draws
        self._num_too_many = 0
        if number := self._states.place_of(_state(self._reader)) - 1:
            self.number = number
        else:  # no state says that nothing has been drawn
            self._num_too_many = 1

    @property
    def number(self) -> int:
        """Draws so far, of others. To be set to at least 1, by whoever knows that nobody draws at the same time."""
        return self._states.number_of(_state(self._reader)) - self._num_too_many

    @number.setter
    def number(self, number: int) -> None:
        restore_iterator(self._reader, self._states.after(number))
        self._num_too_many = 0


class _States:
    """The states of readers of generators with the same seeds: they tell of a reader's own draw, and of all draws.

    Each reader is given the state of the first one, so that it tells of the number of draws only.
    """

    def __init__(self, shuffle: Any) -> None:
        self._again = _one_row(shuffle, compat.Seeds(shuffle))
        self._states: list[Any] = []
        self._numbers: dict[bytes, int] = {}
        self._places: dict[bytes, int] = {}
        self._first = self._draw()

    def place_of(self, state: Any) -> int:
        """Which draw was that of a reader that has just been made, from 1."""
        return self._found(state, self._places)

    def number_of(self, state: Any) -> int:
        """How many draws there were when the first reader, or one that was given a state of it, had this state."""
        return self._found(state, self._numbers)

    def after(self, number: int) -> Any:
        """The first reader's state after so many draws, at least 1."""
        while len(self._states) < number:
            self._draw()
        return self._states[number - 1]

    def _found(self, state: Any, known: dict[bytes, int]) -> int:
        while (found := state.tobytes()) not in known:
            self._draw()
        return known[found]

    def _draw(self) -> Any:
        reader = iter(self._again)
        of_reader = _state(reader)
        of_first = _state(self._first) if self._states else of_reader
        self._states.append(of_first)
        self._numbers[of_first.tobytes()] = self._places[of_reader.tobytes()] = len(self._states)
        return reader


def _one_row(shuffle: Any, seeds: compat.Seeds) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    row = tf.data.Dataset.range(1).with_options(options)
    return compat.shuffled_alike(row, shuffle, seeds=seeds, buffer_size=1)  # the state tells of each place of a buffer


def _state(iterator: Any) -> Any:
    return iterator_state(iterator, ignores_state_outside=True)
