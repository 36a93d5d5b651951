"""A generator stands at the same place after each of its readers, however far TensorFlow's thread had come."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from paceline.data.items.streams import Reading, num_read_behind, one_ahead, read_as_asked_for, stream_of


def numbers(end: int = 1000) -> Iterator[int]:
    yield from range(end)


def begun(generator: Iterator[int], *first_batches: int) -> Reading:
    return stream_of(generator).begin(generator, first_batches)


@pytest.mark.parametrize("num_read_by_the_thread", [3, 4])
def test_one_more_than_asked_for_has_been_read_whoever_read_it(num_read_by_the_thread: int) -> None:
    generator = numbers()
    reading = begun(generator)
    reading.num_asked = 3
    assert [next(reading) for _ in range(num_read_by_the_thread)] == [*range(num_read_by_the_thread)]
    reading.end()
    assert next(generator) == 4
    assert [*reading] == [], "a thread that comes late takes nothing"


def test_a_reader_that_goes_on_meets_what_another_has_read_for_it() -> None:
    generator = numbers()
    one = begun(generator)
    one.num_asked = 2
    assert next(one) == 0
    other = begun(generator)
    other.num_asked = 1
    assert next(other) == 3
    assert [next(one), next(one)] == [1, 2]
    one.num_asked = 3
    assert next(begun(generator)) == 6, "4 is read ahead for one of them, 5 for the other"


def test_every_reading_begins_with_what_keras_has_looked_at() -> None:
    generator = numbers()
    first = next(generator), next(generator)
    for expected in ([0, 1, 2], [0, 1, 4]):
        reading = begun(generator, *first)
        reading.num_asked = 3
        assert [next(reading) for _ in range(3)] == expected
        reading.leave()
    assert num_read_behind(2, (3, 0, 1, 3)) == 2 * (3 + 1 - 2)
    assert next(begun(generator, 7)) == 7
    assert next(generator) == 2 + num_read_behind(2, (3, 3))


def test_one_that_nobody_has_asked_leaves_the_generator_alone() -> None:
    generator = numbers()
    begun(generator).end()
    assert next(generator) == 0


def test_a_ctrl_c_while_a_batch_is_read_ahead_is_not_kept_for_a_step_that_never_comes() -> None:
    """It was: the key had no effect, and the script went on."""

    def interrupted() -> Iterator[int]:
        yield 0
        raise KeyboardInterrupt

    generator = interrupted()
    reading = begun(generator)
    reading.num_asked = 1
    assert next(reading) == 0
    with pytest.raises(KeyboardInterrupt):
        reading.end()


def test_its_end_and_its_error_come_to_who_asks_for_them() -> None:
    def failing() -> Iterator[int]:
        yield 0
        raise ArithmeticError

    for generator, error in ((numbers(1), StopIteration), (failing(), ArithmeticError)):
        reading = begun(generator)
        reading.num_asked = 1
        assert next(reading) == 0
        stream_of(generator).settle()
        with pytest.raises(error):
            next(reading)
        reading.end()


def test_a_generator_that_nobody_has_any_more_is_let_go() -> None:
    generator = numbers()
    begun(generator).num_asked = 1
    gone = weakref.ref(generator)
    del generator
    gc.collect()
    assert gone() is None


def test_the_pipeline_behind_it_is_never_further_ahead() -> None:
    """TensorFlow's own prefetch, and what it adds to a pipeline, come to any depth while a step is slow."""
    num_read = 0

    def counting() -> Iterator[Any]:
        nonlocal num_read
        for number in range(100):
            num_read += 1
            yield np.int64(number)

    source = tf.data.Dataset.from_generator(counting, output_signature=tf.TensorSpec([], tf.int64))
    keras_dataset = source.prefetch(tf.data.AUTOTUNE)
    iterator = iter(one_ahead(read_as_asked_for(keras_dataset).map(lambda number: number * 2)))
    for step in range(20):
        assert int(next(iterator)) == 2 * step
        assert num_read in (step + 1, step + 2)
