"""What an epoch iterator tells the source of its data: of new iterators over them, and of what steps ask for."""

from collections.abc import Sequence
from typing import Any

from paceline.data.indexed.index_source import AnyReading
from paceline.data.items.streams import Reading, stream_of
from paceline.fit.compat import first_batches
from paceline.fit.item_makers import ItemMakers
from paceline.fit.snapshots.data_replay import draw_skipped_batches


class NoStream:
    """Stands in for the stream of data that are no generator."""

    first_batches: Sequence[Any] = ()
    was_used_up = False

    def or_that_of(self, reading: AnyReading | None, makers: ItemMakers | None) -> "NoStream":
        """The stream of a source by index, or of a `PyDataset` whose items go through rings, if the data are one."""
        if reading is not None:
            return IndexStream(reading)
        return self if makers is None else ItemStream(makers)

    def stands_in_for(self, adapter: Any) -> None:
        """Keras's dataset stays as it is."""

    def begin(self) -> Any:
        """Nothing is to be done for a new iterator."""

    def ask_for(self, num_batches: int) -> None:
        """Nobody counts."""

    def raise_fault(self) -> None:
        """The newest iterator has ended, and not because of an exception."""


class IndexStream(NoStream):
    """Stands in for the stream of a source by index, which counts epochs."""

    def __init__(self, reading: AnyReading) -> None:
        self._reading = reading

    def begin(self) -> None:
        """A new iterator is about to be made."""
        self._reading.new_iterator()

    def ask_for(self, num_batches: int) -> None:
        """Steps have asked for so many batches of the newest iterator, with the one that begins."""
        self._reading.ask_for(num_batches)


class ItemStream(NoStream):
    """Stands in for the stream of a `PyDataset` whose items go through rings."""

    def __init__(self, makers: ItemMakers) -> None:
        self._makers = makers

    def begin(self) -> None:
        """A new iterator is about to be made."""
        self._makers.items.begin()

    def ask_for(self, num_batches: int) -> None:
        """Steps have asked for so many batches of the newest iterator, with the one that begins."""
        self._makers.ask_for(num_batches)

    def raise_fault(self) -> None:
        """The newest iterator has ended: raises the exception of an item, if there was one."""
        self._makers.items.raise_fault()


class GivenStream(NoStream):
    """The stream of a generator that was given to Keras, which is about to look at it."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self.first_batches: Sequence[Any] = ()
        """What Keras has looked at."""
        self.reading: Any = None
        """That for the newest iterator."""
        self.was_used_up = False
        """Whether the generator had ended before that iterator: it gives what Keras has looked at, and no more."""
        draw_skipped_batches(generator)
        self._stream = stream_of(generator)
        self._stream.settle()

    def stands_in_for(self, adapter: Any) -> None:
        """The data adapter's dataset reads what is read here."""
        self.first_batches = first_batches(adapter)
        adapter.generator = lambda: self.reading  # asked when TensorFlow begins to read an iterator

    def ask_for(self, num_batches: int) -> None:
        """Steps have asked for so many batches of the newest iterator, with the one that begins."""
        self.reading.num_asked = num_batches

    def begin(self) -> Reading:
        """The reading for the next iterator."""
        if self.reading is not None:
            self.reading.leave()
        draw_skipped_batches(self._generator)
        self.was_used_up = self._stream.has_ended
        reading = self.reading = self._stream.begin(self._generator, self.first_batches)
        return reading
