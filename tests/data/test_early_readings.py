"""The next iterator over a dataset, made early: for everybody else it has not been made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from paceline.data.early_readings import Buffers, EarlyReading, buffers_of
from paceline.data.fingerprint import FingerprintLog
from paceline.data.iterator_state import iterator_state
from paceline.data.local_batches import local_batches, read_ahead
from paceline.data.worker_memory import memory_share
from paceline.fit.install import install_with_keras

install_with_keras()


def _rows(rows: int = 40) -> Any:
    return tf.data.Dataset.range(rows)


def _in_two_levels() -> Any:
    files = _rows(8).shuffle(8)
    return files.interleave(lambda file: tf.data.Dataset.range(5).map(lambda row: row + 10 * file)).shuffle(15).batch(4)


def _buffers(dataset: Any, size: int = 1) -> tuple[Any, Buffers | None]:
    log = FingerprintLog() if size > 1 else None
    local = local_batches(dataset, 0, size, log=log)
    return read_ahead(local), buffers_of(dataset, local)


def _early(dataset: Any, size: int = 1) -> EarlyReading:
    local, buffers = _buffers(dataset, size)
    assert buffers is not None
    return EarlyReading(local, buffers, 0)


def _read(iterator: Any) -> list[Any]:
    return [batch.numpy().tolist() for batch in iterator]


def _seeded(make: Callable[[], Any]) -> Any:
    tf.random.set_seed(3)
    return make()


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    "make",
    [lambda: _rows().shuffle(15).batch(4), lambda: _rows().shuffle(5).map(abs, 2).shuffle(9).batch(4), _in_two_levels],
)
def test_what_is_made_early_is_what_would_be_made_later(make: Callable[[], Any], size: int) -> None:
    one, other = (local_batches(_seeded(make), 0, size) for _ in range(2))
    expected = [_read(one), _read(one)]
    iter(one)  # which nobody reads
    expected += [_read(one), _read(one)]

    dataset = _seeded(make)
    early = _early(dataset, size)
    got = [_read(read_ahead(local_batches(dataset, 0, size)))]
    assert early.begin(0)
    got.append(_read(early.take()))
    assert early.begin(1)
    early.take()
    got.append(_read(early.take()))
    got.append(_read(local_batches(dataset, 0, size)))
    assert got == expected != [_read(other)] * 4


def test_nothing_has_been_drawn_if_its_time_does_not_come() -> None:
    expected = [_read(one) for one in [_seeded(_in_two_levels)] for _ in range(3)]
    dataset = _seeded(_in_two_levels)
    early, got = _early(dataset), [_read(dataset)]
    assert early.begin(1)
    early.drop()
    got.append(_read(dataset))
    assert early.begin(0)
    got.append(_read(dataset))  # by somebody else, while it is there
    assert early.take() is None
    assert got == expected


def test_the_state_of_another_iterator_does_not_show_it() -> None:
    options = tf.data.Options()
    options.autotune.enabled = False  # else TensorFlow reads ahead by itself
    dataset = _seeded(_in_two_levels).with_options(options)
    early, live = _early(dataset), iter(dataset)
    next(live)
    before = iterator_state(live, ignores_state_outside=True)
    assert early.begin(1)
    assert (iterator_state(live, ignores_state_outside=True) == before).all()


def test_two_buffers_have_to_fit_into_the_memory_of_the_worker() -> None:
    dataset = _seeded(_in_two_levels)
    local, buffers = _buffers(dataset)
    assert buffers is not None
    _read(dataset)
    assert not EarlyReading(local, buffers, -memory_share()).begin(0)
    images = tf.data.Dataset.range(9).map(lambda row: tf.zeros([1 << 16, 1 << 16]) + tf.cast(row, tf.float32))
    local, buffers = _buffers(images.shuffle(9).batch(3))
    assert buffers is not None
    assert not EarlyReading(local, buffers, memory_share()).begin(0)


def _generator() -> Any:
    return tf.data.Dataset.from_generator(lambda: iter(range(9)), output_signature=tf.TensorSpec([], tf.int64))


def _reading_a_variable() -> Any:
    variable = tf.Variable(0, dtype=tf.int64, trainable=False)
    return _rows().shuffle(9).map(lambda row: row + variable).batch(4)


OPEN: dict[str, Callable[[], Any]] = {
    "rows": lambda: _rows().shuffle(9).batch(4),
    "maps": lambda: _rows().map(abs, 2).shuffle(9).filter(lambda row: row > 3).batch(4).prefetch(1),
    "random numbers from the row": lambda: (
        _rows().map(lambda row: tf.random.stateless_uniform([2], [1, tf.cast(row, tf.int32)])).shuffle(9).batch(4)
    ),
    "numbered": lambda: _rows().enumerate().shuffle(9).batch(4),
    "cached below": lambda: _rows().cache().shuffle(9).batch(4),
    "padded": lambda: _rows().map(lambda row: tf.range(row)).shuffle(9).padded_batch(4),
    "batches shuffled": lambda: _rows().batch(4).shuffle(9),
}
CLOSED: dict[str, Callable[[], Any]] = {
    "no shuffle": lambda: _rows().batch(4),
    "the same order in each epoch": lambda: _rows().shuffle(9, reshuffle_each_iteration=False).batch(4),
    "repeated": lambda: _rows().shuffle(9).repeat(2).batch(4),
    "cached above": lambda: _rows().shuffle(9).cache().batch(4),
    "in a file": lambda: _rows().cache("unused").shuffle(9).batch(4),
    "calls Python": lambda: _rows().map(lambda row: tf.py_function(int, [row], tf.int64)).shuffle(9).batch(4),
    "a generator": lambda: _generator().shuffle(9).batch(4),
    "draws": lambda: _rows().map(lambda row: row + tf.random.uniform([], 0, 9, tf.int64)).shuffle(9).batch(4),
    "reads a variable": _reading_a_variable,
    "another dataset inside": lambda: _rows().shuffle(9).flat_map(lambda row: _rows(2).shuffle(2)).batch(4),
    "some of each": lambda: tf.data.Dataset.sample_from_datasets([_rows(), _rows()]).shuffle(9).batch(4),
    "one after the other": lambda: _rows().concatenate(_rows()).shuffle(9).batch(4),
}


@pytest.mark.parametrize("name", OPEN)
def test_a_buffer_that_is_filled_anew_can_be_filled_early(name: str) -> None:
    _, buffers = _buffers(_seeded(OPEN[name]))
    assert buffers is not None
    assert buffers.draws == (1,)
    assert buffers.has_cache == (name == "cached below")
    assert buffers.batches == (9 if name == "batches shuffled" else 3)


@pytest.mark.parametrize("name", CLOSED)
def test_it_is_not_where_anything_else_may_come_into_it(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert _buffers(_seeded(CLOSED[name]))[1] is None


def test_nor_where_the_script_has_decided_when_reading_begins() -> None:
    options = tf.data.Options()
    options.experimental_warm_start = False
    assert _buffers(_seeded(OPEN["rows"]).with_options(options))[1] is None


def test_notes_of_an_iterator_that_was_made_early_are_its_own() -> None:
    log = FingerprintLog()
    dataset = local_batches(_rows(4).batch(2), 0, 2, log=log)
    other = local_batches(_rows(6).batch(3), 0, 2, log=log)
    log.begin_iterator()
    _read(dataset)
    first = log.of_batch(0)
    log.begin_early()
    _read(other)
    assert log.of_batch(0) == first is not None
    log.begin_iterator()  # which nobody reads
    log.begin_iterator()
    assert log.of_batch(0) is None
    log.take_early()
    assert log.of_batch(0) not in (None, first)
    log.begin_early()
    _read(dataset)
    log.begin_iterator()
    log.drop_early()
    _read(dataset)
    assert log.of_batch(0) is None
