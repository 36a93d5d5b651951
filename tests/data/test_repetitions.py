"""Shuffles below `repeat`: the script's generators draw what a plain iterator that is read as far would have drawn."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from paceline.data.order.repetitions import OwnDraws, with_own_draws
from paceline.data.order.shuffles import draw_as_iterators, draws_as_read
from paceline.seams.install import install_with_keras

install_with_keras()

_range, _zip = tf.data.Dataset.range, tf.data.Dataset.zip


def _rows(rows: int = 4, elements: int = 9) -> Any:
    return _range(rows).shuffle(elements)


def _apart(rows: int = 4) -> Any:
    """With a stage between the shuffle and a repeat, of which TensorFlow would make one stage."""
    return _rows(rows).map(lambda row: row + 1)


PIPELINES: dict[str, Callable[[], Any]] = {
    "one stage": lambda: _rows().repeat(2),
    "one stage, endless": lambda: _rows().repeat(),
    "one stage, small buffer": lambda: _rows(6, 2).repeat(3),
    "one stage over a shuffle": lambda: _rows().shuffle(3).repeat(2),
    "one stage over a shuffle, with rows of two repetitions": lambda: _rows(6, 2).skip(1).shuffle(7).repeat(3),
    "one stage over a shuffle, endless": lambda: _rows(6, 2).shuffle(12).repeat(),
    "changes nothing between": lambda: _rows().take(-1).map(lambda row: row).repeat(1).repeat(2),
    "options between": lambda: _rows().with_options(tf.data.Options()).repeat(2),
    "apart": lambda: _apart().repeat(2),
    "apart, endless": lambda: _apart().repeat(),
    "once": lambda: _apart().repeat(1),
    "never": lambda: _zip(_apart().repeat(0), _rows().repeat(2)),
    "left out": lambda: _rows().skip(1).repeat(2),
    "chosen": lambda: _rows().take(2).repeat(3).skip(1).take(4).repeat(2),
    "batches": lambda: _rows().batch(3).repeat(2),
    "rows of batches": lambda: _apart().repeat(2).batch(3),
    "repeated twice": lambda: _apart().repeat(2).repeat(2),
    "repeated twice, and endlessly": lambda: _rows().repeat(2).take(5).repeat(),
    "shuffled again": lambda: _apart().repeat(2).shuffle(3),
    "shuffled and repeated again": lambda: _apart().repeat(2).shuffle(3).skip(1).repeat(2),
    "one stage over one stage": lambda: _rows().repeat(2).shuffle(3).repeat(2),
    "side by side": lambda: _zip(_apart(4).repeat(2), _apart(3).repeat(3)),
    "side by side, repeated": lambda: _zip(_rows(), _apart(3).repeat(2)).repeat(2),
    "cached below": lambda: _range(4).cache().shuffle(3).skip(1).repeat(2),
}


def _made(make: Callable[[], Any], seed: int = 3) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = False  # else TensorFlow reads ahead
    tf.random.set_seed(seed)
    return make().with_options(options)


def _first(dataset: Any) -> list[Any]:
    return [str(row) for row in dataset.take(6).as_numpy_iterator()]


@pytest.mark.parametrize("name", PIPELINES)
def test_what_is_counted_is_what_tensorflow_draws(name: str) -> None:
    """A `repeat` makes another iterator at its end; a buffer is filled with rows of the next repetition, too."""
    plain, own = _made(PIPELINES[name]), _made(PIPELINES[name])
    _, draws = with_own_draws(own)
    assert isinstance(draws, OwnDraws)
    length = int(plain.cardinality())
    for number in range(1, length + 2 if length >= 0 else 15):
        iterator = iter(plain)
        for _ in range(number):
            next(iterator, None)
        draws.new_iterator()
        draws.ask_for(number)
        assert _first(own) == _first(plain), number


@pytest.mark.parametrize(
    "make",
    [
        lambda: _rows().filter(lambda row: row > 0).repeat(2),
        lambda: _rows().concatenate(_rows()),
        lambda: _rows().cache(),
        lambda: (lambda rows: _range(2).flat_map(lambda _: rows))(_rows()),
        lambda: _rows().map(lambda row: row + 1).repeat(2),
    ],
)
def test_iterators_are_read_where_it_depends_on_that_what_they_draw(make: Callable[[], Any]) -> None:
    assert draws_as_read(_made(make))


@pytest.mark.parametrize(
    "make",
    [
        lambda: _range(4).cache().repeat(2).concatenate(_range(4)).shuffle(3),
        lambda: _rows().shuffle(3).filter(lambda row: row > 0).repeat(1),
        lambda: _range(4).shuffle(9, reshuffle_each_iteration=False).repeat(2),
        lambda: _zip(_rows(), _rows()).interleave(lambda row, _: tf.data.Dataset.from_tensors(row)),
    ],
)
def test_iterators_are_not_read_where_each_draws_the_same(make: Callable[[], Any]) -> None:
    plain, again = _made(make), _made(make)
    for _ in range(2):
        list(plain)
    assert not draws_as_read(again)
    draw_as_iterators(again, [3, 1])
    assert _first(again) == _first(plain)
