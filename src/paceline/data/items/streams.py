"""A user's Python generator, read exactly as far ahead on every rank, in every run.

TensorFlow reads a generator in a thread of its own, ahead of the steps, and what is read is gone: who goes on with the
generator (the next validation, the next `fit`, the script's own `next`) begins behind it. Keras lets that be as much as
the thread comes to. Here it is one batch, which is what Keras comes to with a generator that keeps up with the steps:

    steps have asked for  0 1 2 3          the iterator ends here, on every rank:
    read of the generator 0 1 2 3 4        4 has been read, and is nobody's; the next reader begins with 5

The pipeline behind a reading holds one batch at most, so it is never further ahead; where its thread has not come so
far, whoever ends the reading reads that batch in its place.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from paceline.data.compat import inputs_of

_BATCHES_AHEAD = 1


class Stream:
    """One generator, and what iterators have read of it; get it from `stream_of`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.has_ended = False
        """Whether the generator had no more batches."""
        self.skip: Callable[[Iterator[Any]], None] | None = None
        """Called with the generator before that is used again: takes from it what a resumed run had taken."""
        self._readings: list[Reading] = []

    def begin(self, generator: Iterator[Any], first_batches: Sequence[Any]) -> "Reading":
        """A new reading of `generator`, which goes on where those before it are due to have stopped.

        Args:
            generator: The stream's.
            first_batches: What Keras has looked at of it. Each of Keras's iterators begins with them.
        """
        self.use(generator)
        reading = Reading(self, generator, first_batches)
        self._readings.append(reading)
        return reading

    def use(self, generator: Iterator[Any]) -> None:
        """The generator is about to be used, and stands where its next reader is to begin."""
        skip, self.skip = self.skip, None
        if skip is not None:
            skip(generator)
        self.settle()

    def settle(self) -> None:
        """What its readings are due to have read of it has been read now."""
        with self.lock:
            for reading in self._readings:
                reading.read_what_is_due()
            self._readings = [reading for reading in self._readings if reading.is_open]


_streams: weakref.WeakKeyDictionary[Any, Stream] = weakref.WeakKeyDictionary()


def stream_of(generator: Iterator[Any]) -> Stream:
    """The stream of a generator, the same one for as long as the generator lives."""
    return _streams.setdefault(generator, Stream())


class Reading:
    """What one iterator over a generator reads of it: an iterator itself, which TensorFlow's thread asks for batches.

    Usage:
        reading = stream_of(generator).begin(generator, first_batches)
        reading.num_asked += 1   # before each step
        reading.end()            # nobody asks any more
    """

    def __init__(self, stream: Stream, generator: Iterator[Any], first_batches: Sequence[Any]) -> None:
        self.is_open = True
        self.num_asked = 0
        """Batches that steps have asked for."""
        self._num_read = 0
        self._stream = stream
        self._generator = weakref.ref(generator)  # else it would keep itself alive, through its stream
        self._first_batches = tuple(first_batches)
        self._ahead: deque[Callable[[], Any]] = deque()
        """Read by others than the thread, which takes them from here."""

    def __iter__(self) -> "Reading":
        return self

    def __next__(self) -> Any:
        with self._stream.lock:
            if not self.is_open:
                raise StopIteration
            return self._ahead.popleft()() if self._ahead else self._read()

    def read_what_is_due(self) -> None:
        """Reads one batch more than steps have asked for, unless the thread has. Waits for one that it is reading."""
        with self._stream.lock:
            while self.num_asked and self._num_read < self.num_asked + _BATCHES_AHEAD:
                try:
                    batch = self._read()
                except Exception as fault:  # the step's that asks for it, as if the thread had met it
                    self._ahead.append(_raising(fault))
                    return
                if self.is_open:
                    self._ahead.append(_returning(batch))

    def end(self) -> None:
        """Nobody asks any more: the generator stands where the next reader is to begin."""
        self.leave()
        self._stream.settle()

    def leave(self) -> None:
        """As `end`, but nothing is waited for: where the generator stands is seen to when it is used again."""
        self.is_open = False

    def _read(self) -> Any:
        position, self._num_read = self._num_read, self._num_read + 1
        if position < len(self._first_batches):
            return self._first_batches[position]
        generator = self._generator()
        if generator is None:
            raise StopIteration
        try:
            return next(generator)
        except StopIteration:
            self._stream.has_ended = True
            raise


def _returning(batch: Any) -> Callable[[], Any]:
    return lambda: batch


def _raising(fault: BaseException) -> Callable[[], Any]:
    def raise_() -> Any:
        raise fault

    return raise_


def num_read_behind(num_first: int, num_asked: Sequence[int]) -> int:
    """How many batches behind its first ones have been read of a generator by readings asked for so many each; pure."""
    return sum(max(0, asked + _BATCHES_AHEAD - num_first) for asked in num_asked if asked)


def read_as_asked_for(dataset: Any) -> Any:
    """Keras's dataset over a generator, without whatever reads it ahead."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    if "Prefetch" in type(dataset).__name__:  # Keras's own, as deep as TensorFlow likes
        [dataset] = inputs_of(dataset)
    return dataset.with_options(options)


def one_ahead(dataset: Any) -> Any:
    """What TensorFlow reads in a thread while a step runs: never more than a reading is due to have read."""
    return dataset.prefetch(_BATCHES_AHEAD)
