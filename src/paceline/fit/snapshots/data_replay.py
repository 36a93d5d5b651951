"""Returns to a position in the data without the state of an iterator: by skipping, or by reading the data again."""

import itertools
import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import GeneratorType
from typing import Any
from weakref import WeakKeyDictionary

from paceline.data.order.shuffles import draw_as_iterators, draws_as_read
from paceline.fit.enqueuers import PresentItems
from paceline.resilience.random_generators import capture_generators, restore_generators

_LOGGER = logging.getLogger("paceline")

_LINE_INTERVAL_SECONDS = 2.0


def begin_at(adapter: Any, position: int) -> None:
    """Makes the next generator of a `PyDatasetAdapter` begin at `position`; those after it are whole.

    One of which nothing has been read, or all, is left as it is: the next generator may be another iterator's.
    """
    source: Any = PresentItems(adapter.py_dataset)
    is_finite = source.num_batches is not None
    if position == 0 or (is_finite and position >= source.num_batches):
        return
    name = "_finite_generator" if is_finite else "_infinite_generator"
    indices: Any = itertools.count(position)
    if is_finite:
        order = list(range(source.num_batches))
        if adapter.shuffle:
            random.shuffle(order)  # as Keras does where the generator begins
        indices = order[position:]

    def generator() -> Iterator[Any]:
        vars(adapter).pop(name, None)
        for index in indices:
            yield adapter._standardize_batch(source[index])

    setattr(adapter, name, generator)


def begin_anyhow(adapter: Any) -> None:
    """The next generator of a `PyDatasetAdapter` is read by another rank, and may begin anywhere."""
    for name in ("_finite_generator", "_infinite_generator"):
        vars(adapter).pop(name, None)


class Replaying:
    """Reads batches that have been trained on, and says how far it is where that takes long."""

    def __init__(self, total: int, is_chief: bool) -> None:
        self._total = total
        self._is_chief = is_chief
        self._num_read = 0
        self._said_at = time.monotonic()

    def read(self, iterator: Any, num_batches: int) -> None:
        """Reads so many, or as many as there are."""
        for _ in range(num_batches):
            try:
                next(iterator)
            except StopIteration:
                return
            self._num_read += 1
            if self._is_chief and time.monotonic() - self._said_at >= _LINE_INTERVAL_SECONDS:
                self._said_at = time.monotonic()
                _LOGGER.info(
                    "reading the data again up to the position of the snapshot: batch %d of %d",
                    self._num_read,
                    self._total,
                )


def draw_again(dataset: Any, batches: Sequence[int], is_chief: bool) -> None:
    """Leaves the shuffles of `dataset` as they are after iterators from which so many `batches` each have been read.

    They are read only where it depends on that which seeds have been drawn, each up to one batch behind those that
    steps have taken: TensorFlow reads ahead, and finds the end of the data there.
    """
    if not draws_as_read(dataset):
        draw_as_iterators(dataset, batches)
        return
    progress, after = Replaying(sum(batches), is_chief), capture_generators()
    for num_batches in batches:
        iterator = iter(dataset)
        progress.read(iterator, num_batches + 1 if num_batches else 0)
    restore_generators(after)


def read_stream_again(stream: Any, dataset: Any, before: Sequence[int], current: int, is_chief: bool) -> Any:
    """A new iterator over a generator's `dataset`, at its position.

    Args:
        stream: All that is read of the generator.
        dataset: Reads the stream.
        before: How many batches earlier iterators had read, each.
        current: How many the one that is continued had read.
        is_chief: Whether this rank says what all ranks see.
    """
    progress = Replaying(sum(before) + current, is_chief)
    for num_batches in before:
        reading = stream.begin()
        progress.read(reading, num_batches)
        reading.num_asked = num_batches
    reading = stream.begin()
    live = iter(dataset)
    progress.read(live, current)
    reading.num_asked = current
    return live


# Batches that a skipped `fit` had taken from a generator are taken when the generator is used again: a generator has to
# make them once more, which may take as long as it did then, and most scripts never use it after its `fit`.


@dataclass(frozen=True, slots=True)
class _Skip:
    """What has to be drawn of one generator."""

    num_batches: int
    random: Any
    """Random generators as they were when the `fit` began, which the batches may be drawn from."""
    is_chief: bool


_skips: WeakKeyDictionary[Any, _Skip] = WeakKeyDictionary()


def skip_batches_later(generator: Iterator[Any], num_batches: int, is_chief: bool) -> None:
    """From `generator` so many batches will be drawn before it is used again: as if that were done now."""
    if num_batches > 0:
        _skips[generator] = _Skip(num_batches, capture_generators(), is_chief)


def draw_skipped_batches(data: Any) -> None:
    """`data` are about to be used: if they are a generator whose batches are to be skipped, they are drawn now."""
    skip = _skips.pop(data, None) if isinstance(data, GeneratorType) else None
    if skip is None:
        return
    after = capture_generators()
    restore_generators(skip.random)
    Replaying(skip.num_batches, skip.is_chief).read(data, skip.num_batches)
    restore_generators(after)
