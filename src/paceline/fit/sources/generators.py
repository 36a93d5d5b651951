"""A generator as a source: one stream for all its readers (`data/items/streams.py`), which no run can go back in."""

from collections.abc import Iterator, Sequence
from types import GeneratorType
from typing import Any

from paceline.data.fingerprint import FingerprintLog
from paceline.data.foreign_memory import read_at_once
from paceline.data.items.shared_generators import division_of_generator
from paceline.data.items.streams import num_read_behind, one_ahead, read_as_asked_for, stream_of
from paceline.data.own_rows.division import AnyDivision
from paceline.fit.compat import NUM_LOOKED_AT, first_batches
from paceline.fit.run import Run
from paceline.fit.sources.source import Opened, Position, Replaying, Source
from paceline.resilience.random_generators import capture_generators, restore_generators


class Generator(Source):
    """See the module. Keras has looked at the first batches, with which each iterator begins."""

    is_python = True
    is_read_ahead = False  # but by `one_ahead`

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.dataset = read_as_asked_for(read_at_once(opened.dataset))
        self.batches = self.dataset
        self.first_batches = first_batches(opened.adapter)
        self._stream = stream_of(opened.given)
        self._readings: list[Any] = []
        """That of the newest iterator, if there is one."""
        # Asked when TensorFlow begins to read an iterator. Not of `self`, which holds the adapter: in a circle the
        # generator would live, and keep its files open, until Python looks for circles.
        readings = self._readings
        opened.adapter.generator = lambda: readings[-1]

    def rows(self, rank: int, size: int, log: FingerprintLog | None = None) -> Any:
        """See `Source`."""
        return one_ahead(super().rows(rank, size, log))

    def whole(self) -> Any:
        """See `Source`."""
        return one_ahead(self.dataset)

    def begin(self) -> None:
        """See `Source`."""
        super().begin()
        if self._readings:
            self._readings.pop().leave()
        self._stream.use(self.given)
        self.was_used_up = self._stream.has_ended
        self._readings.append(self._stream.begin(self.given, self.first_batches))
        Run.ends(self._reading)

    @property
    def _reading(self) -> Any:
        """Of the newest iterator."""
        return self._readings[-1]

    def ask_for(self, num_batches: int) -> None:
        """See `Source`."""
        super().ask_for(num_batches)
        self._reading.num_asked = num_batches

    def go_on(self, dataset: Any, position: Position) -> Any:
        """See `Source`."""
        *before, current = position.batches or (0,)
        progress = Replaying(sum(before) + current, self.speaks)
        for num_batches in before:
            self.begin()
            progress.read(self._reading, num_batches)
            self._reading.num_asked = num_batches
        self.begin()
        live = iter(dataset)
        progress.read(live, current)
        self._reading.num_asked = current
        return live

    def pass_over(self, batches: Sequence[int]) -> None:
        """See `Source`."""
        skip_batches_later(self.given, num_read_behind(len(self.first_batches), batches), self.speaks)

    def _divided(self) -> AnyDivision:
        return division_of_generator(self.given)


def pass_over_unseen(given: Any, batches: Sequence[int], is_chief: bool) -> None:
    """As `Source.pass_over`, of data that Keras has not looked at, and will not in this call."""
    if isinstance(given, GeneratorType) and batches:
        skip_batches_later(given, NUM_LOOKED_AT + num_read_behind(NUM_LOOKED_AT, batches), is_chief)


def skip_batches_later(generator: Iterator[Any], num_batches: int, is_chief: bool) -> None:
    """From `generator` so many batches will be drawn before it is used again: as if that were done now.

    A generator has to make them once more, which may take as long as it did then, and most scripts never use it after
    its `fit`.
    """
    if num_batches <= 0:
        return
    random = capture_generators()  # the batches may be drawn from them

    def skip(generator: Iterator[Any]) -> None:
        after = capture_generators()
        restore_generators(random)
        Replaying(num_batches, is_chief).read(generator, num_batches)
        restore_generators(after)

    stream_of(generator).skip = skip
