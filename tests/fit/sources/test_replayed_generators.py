"""What a passed-over `fit` had taken of a generator is drawn once somebody uses that again, and only then."""

import gc
import random
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from paceline.data.items.streams import stream_of
from paceline.fit import compat
from paceline.fit.epochs import epoch_iterator_class
from paceline.fit.snapshots.data_cursor import DataCursor
from paceline.fit.sources.generators import skip_batches_later


def numbers(noted: list[int], end: int = 100) -> Iterator[int]:
    for number in range(end):
        noted.append(number)
        yield number


def use(generator: Any) -> None:
    stream_of(generator).use(generator)


def test_batches_are_drawn_from_the_same_generator_only_and_once() -> None:
    first: list[int] = []
    other: list[int] = []
    generator: Any = numbers(first)
    skip_batches_later(generator, 5, is_chief=True)
    use(numbers(other))
    assert (first, other) == ([], [])
    use(generator)
    use(generator)
    assert first == [0, 1, 2, 3, 4]
    assert next(generator) == 5


def test_one_that_ends_before_is_at_its_end() -> None:
    generator: Any = numbers([], end=3)
    skip_batches_later(generator, 5, is_chief=False)
    use(generator)
    assert list(generator) == []


def test_one_that_nobody_has_any_more_is_let_go() -> None:
    generator: Any = numbers([])
    skip_batches_later(generator, 5, is_chief=True)
    alive = weakref.ref(generator)
    del generator
    gc.collect()
    assert alive() is None


def test_they_are_drawn_from_the_random_numbers_of_then_and_those_of_now_stay() -> None:
    def drawing() -> Iterator[float]:
        while True:
            yield random.random()

    random.seed(1)
    generator: Any = drawing()
    skip_batches_later(generator, 3, is_chief=True)
    random.seed(2)
    use(generator)
    assert random.random() == random.Random(2).random()


@pytest.mark.parametrize("given_again", [False, True])
def test_a_passed_over_fit_reads_what_keras_looks_at_and_no_more(given_again: bool) -> None:
    """The next reader of the same generator goes on behind the passed-over `fit`; another one's is left alone."""
    epoch_iterator = epoch_iterator_class(compat.trainer_module.TFEpochIterator)
    noted: list[int] = []

    def batches() -> Iterator[Any]:
        for number in numbers(noted):
            yield np.full((2, 1), number), np.zeros((2, 1))

    def epochs_of(data: Any) -> Any:
        return epoch_iterator(tf.distribute.get_strategy(), x=data, steps_per_epoch=7)

    generator = batches()
    cursor = DataCursor(epochs_of(generator), is_chief=True)
    cursor.advance([7, 7])
    assert cursor.cursor.batches == (7, 7)
    assert len(noted) < 7
    again = epochs_of(generator if given_again else batches())
    again.source.begin()
    first, _ = next(again.data_adapter.generator())
    # Each of the two had read a batch more than its steps had asked for, and began with the two that Keras looked at.
    assert first[0, 0] == (2 + 6 + 6 if given_again else 0)
