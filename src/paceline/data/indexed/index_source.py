"""A source of which rows are read by their numbers, as a `tf.data.Dataset`; each rank reads its own rows only.

    first read of an iterator ─► epoch, first batch ─► numbers of batches ─► rows of a rank in each ─► read ─► parse
                   (`readings.py`)                        (`epoch_order.py`, `batch_rows.local_slice`)

The numbers are a few, so is the position. All else is prefetched as in any pipeline. A call of Python costs as much as
reading 50 small rows, so small rows are read for several batches at once, and parted in the graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import tensorflow as tf

from paceline.data.compat import with_sources
from paceline.data.faults import keeps_fault
from paceline.data.fingerprint import FingerprintLog
from paceline.data.indexed.epoch_order import EpochOrder
from paceline.data.indexed.readings import EpochReading, MadeIterators
from paceline.data.own_rows.share_table import ShareTable, cut_of

_SOURCE, _READING = "_paceline_index_source", "_paceline_reading"


class IndexedBatches(Protocol):
    """What gives each rank its rows of each global batch, and knows its position as an epoch and a batch."""

    @property
    def number(self) -> int:
        """Of this source, in the order in which the script makes them."""

    @property
    def name(self) -> str:
        """For a profile."""

    @property
    def work(self) -> str:
        """What each rank does, for a line of the log."""

    @property
    def facts(self) -> tuple[str, ...]:
        """What must be the same on all ranks."""

    @property
    def batch_size(self) -> int | None:
        """Rows of a full batch; None: it is not known."""

    @property
    def follows_table(self) -> bool:
        """Whether a rank's rows of each batch can be others than in the batch before."""

    @property
    def num_batches(self) -> int:
        """Of an epoch; more than anybody reads where it is not known."""

    def reading(self, repeats: int = 1) -> Any:
        """What counts the iterators over a dataset that reads so many epochs; negative: without end."""

    def batches(
        self,
        reading: Any,
        rank: int,
        size: int,
        *,
        repeats: int = 1,
        log: FingerprintLog | None = None,
        behind: Callable[[list[Any]], Any] | None = None,
        table: ShareTable | None = None,
    ) -> Any:
        """See `IndexSource.batches`."""


@dataclass(frozen=True, slots=True)
class IndexSource:
    """Rows that can be read by their numbers."""

    number: int
    """Of this source, in the order in which the script makes them."""
    order: EpochOrder
    batch_size: int
    drop_remainder: bool
    begin_epoch: Callable[[], None]
    """Called where an epoch is first read; raises if the rows cannot be read any more."""
    read: Callable[[Any], Sequence[Any]]
    """The components of the rows of these numbers (int64 vector), each as an array whose first axis is the rows. Called
    by several threads."""
    rows_at_once: int
    """For how many rows `read` is called at once, where a rank has fewer of a batch."""
    read_spec: tuple[Any, ...]
    """A `tf.TensorSpec` of a row for each."""
    parse: Any
    """From the components of the rows of a batch and their seeds to others, in the graph; None: they stay so."""
    element_spec: Any
    """Of a row, parsed."""
    name: str
    """For a line of the log."""
    facts: tuple[str, ...]
    """What must be the same on all ranks."""
    follows_table: ClassVar[bool] = True
    """See `IndexedBatches`."""

    @property
    def work(self) -> str:
        """See `IndexedBatches`."""
        return f"each rank reads and computes its rows of each batch, by index ({self.name})"

    @property
    def num_batches(self) -> int:
        """Of an epoch."""
        rows, size = self.order.num_rows, self.batch_size
        return rows // size if self.drop_remainder else -(-rows // size)

    def reading(self, repeats: int = 1) -> EpochReading:
        """See `IndexedBatches`."""
        return EpochReading(self.number, self.num_batches, repeats)

    def dataset(self) -> Any:
        """The global batches, as the script gets them."""
        counted = self.batches(self.reading(), 0, 1).apply(tf.data.experimental.assert_cardinality(self.num_batches))
        return mark_as_source(counted, self)

    def batches(
        self,
        reading: EpochReading,
        rank: int,
        size: int,
        *,
        repeats: int = 1,
        log: FingerprintLog | None = None,
        behind: Callable[[list[Any]], Any] | None = None,
        table: ShareTable | None = None,
    ) -> Any:
        """A rank's rows of each global batch.

        Args:
            reading: Says which epoch an iterator reads.
            rank: This rank.
            size: Number of ranks.
            repeats: Epochs that an iterator reads; negative: without end.
            log: Where the epoch of a batch is noted, to be compared over ranks; None: nowhere.
            behind: Makes an element of the tensors of a batch; None: they are packed as `element_spec` has them.
            table: The shares of each batch; None: they stay.
        """
        end = tf.int64.max if repeats < 0 else repeats * self.num_batches
        at_once = max(1, self.rows_at_once // -(-self.batch_size // size))

        def own(number: int) -> tuple[int, int]:
            is_last = number % self.num_batches == self.num_batches - 1
            return cut_of(table, number, rank, size)(self._rows_of_last if is_last else self.batch_size)

        def numbered(argument: Any) -> Any:
            epoch, first = self._begun(reading, argument)
            return tf.data.Dataset.zip(
                (tf.data.Dataset.from_tensors(epoch).repeat(), tf.data.Dataset.range(first, end, at_once))
            )

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def read(epoch: Any, first: Any) -> Any:
            # TensorFlow 2.21 crashes where arrays without an element are parted (its pull request 126871).
            is_never_empty = at_once > 1 or self._needs_row
            return self._read_batches(epoch, first, tf.minimum(first + at_once, end), own, is_never_empty)

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def made(epoch: Any, number: Any, num_own: Any, *parts: Any) -> Any:
            with tf.control_dependencies([] if log is None else [log.note(number, epoch)]):
                flat = self._parsed(parts, num_own)
            return tf.nest.pack_sequence_as(self.element_spec, flat) if behind is None else behind(flat)

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def read_and_made(epoch: Any, number: Any) -> Any:
            return made(*(part[0] for part in read(epoch, number)))

        numbers = tf.data.Dataset.from_tensors(np.int64(0)).flat_map(numbered)
        if at_once == 1:  # one stage costs less than several
            return numbers.map(read_and_made, num_parallel_calls=tf.data.AUTOTUNE)
        several = numbers.map(read, num_parallel_calls=tf.data.AUTOTUNE)
        return several.unbatch().map(made, num_parallel_calls=tf.data.AUTOTUNE)

    @property
    def _rows_of_last(self) -> int:
        return min(self.batch_size, self.order.num_rows - (self.num_batches - 1) * self.batch_size)

    def _read_batches(
        self, first_epoch: Any, first: Any, end: Any, own: Callable[[int], tuple[int, int]], is_never_empty: bool
    ) -> Any:
        """A rank's rows of the batches first, …, end - 1, counted from the beginning of an epoch; `own` says which.

        Returns:
            Of each batch: the epoch, its number, how many rows are the rank's own, then the components of its rows and,
            for `parse`, their seeds. All have as many rows as the largest batch: copies of others fill them up. With
            `is_never_empty` it has at least one.
        """

        # In Python, as it costs less there than in the graph.
        @keeps_fault
        def read(first_epoch: Any, first: Any, end: Any) -> Any:
            rows, seeds = [], []
            for number in range(first, end):
                repetition, batch = divmod(number, self.num_batches)
                epoch, first_row = int(first_epoch) + repetition, batch * self.batch_size
                begin, behind = own(number)
                rows.append(self.order.rows(epoch, first_row + begin, first_row + behind))
                if self.parse is not None:
                    seeds.append(self.order.seeds(epoch, rows[-1]))
            counts = np.array([len(own) for own in rows], np.int64)
            if is_never_empty and not counts.any():
                rows, seeds = [np.zeros(1, np.int64)], [np.zeros([1, 2], np.int64)][: len(seeds)]
            parts = [*self.read(np.concatenate(rows)), *([np.concatenate(seeds)] if seeds else [])]
            of_batches = [_in_batches(part, counts) for part in parts]
            return [np.full(len(counts), first_epoch), np.arange(first, end), counts, *of_batches]

        number = tf.TensorSpec([], tf.int64)
        of_rows = [*self.read_spec, *([] if self.parse is None else [tf.TensorSpec([2], tf.int64)])]
        types = [spec.dtype for spec in (number, number, number, *of_rows)]
        # Stateless for TensorFlow: a stateful function would forbid saving an iterator's position.
        flat = tf.numpy_function(read, [first_epoch, first, end], types, stateful=False)
        for part in flat[:3]:
            part.set_shape([None])
        for part, spec in zip(flat[3:], of_rows, strict=True):
            part.set_shape([None, None, *spec.shape])
        return tuple(flat)

    @property
    def _needs_row(self) -> bool:
        """Whether `parse` cannot be called for no rows: `map_fn` must know the shapes of their results."""
        specs = tf.nest.flatten(self.element_spec)
        return self.parse is not None and not all(spec.shape.is_fully_defined() for spec in specs)

    def _parsed(self, parts: Sequence[Any], num_own: Any) -> list[Any]:
        """The components of the rows of a batch, as the script has them; `parts` may have more rows than are own."""
        specs = tf.nest.flatten(self.element_spec)
        flat = [part[: tf.maximum(num_own, 1) if self._needs_row else num_own] for part in parts]
        if self.parse is not None:
            flat = self.parse(*flat)
            flat = [part[:num_own] for part in flat] if self._needs_row else flat
        for part, spec in zip(flat, specs, strict=True):
            part.set_shape([None, *spec.shape])
        return flat

    def _begun(self, reading: EpochReading, argument: Any) -> list[Any]:
        """The epoch of an iterator that is first read now, and the batch that it begins with."""

        @keeps_fault
        def begin(_: Any) -> Any:
            self.begin_epoch()
            return reading.begin()

        numbers = tf.numpy_function(begin, [argument], [tf.int64, tf.int64], stateful=False)
        return [tf.ensure_shape(number, []) for number in numbers]


def _in_batches(rows: Any, counts: Any) -> Any:
    """`rows`, so many of each batch, as an array whose first axis is the batches; copies fill those that have fewer."""
    width = max(counts.max(), min(len(rows), 1))
    if len(rows) == width * len(counts):
        return rows.reshape(len(counts), width, *rows.shape[1:])
    firsts = np.cumsum(counts) - counts
    return rows[np.minimum(firsts[:, np.newaxis] + np.arange(width), len(rows) - 1)]


def mark_as_source(dataset: Any, source: IndexedBatches) -> Any:
    """`dataset`, remembered to be the batches of `source`."""
    setattr(dataset, _SOURCE, source)
    return dataset


def source_of(dataset: Any) -> IndexedBatches | None:
    """That whose batches this stage is; None: it is another one."""
    return getattr(dataset, _SOURCE, None)


def with_reading(dataset: Any, reading: EpochReading | MadeIterators) -> Any:
    """`dataset`, remembered to be read as `reading` says."""
    setattr(dataset, _READING, reading)
    return dataset


def reading_of(dataset: Any) -> Any:
    """That of the dataset of local batches that `dataset` is, or is made of; None: it is not of a source by index."""
    return next((getattr(one, _READING) for one in with_sources(dataset) if hasattr(one, _READING)), None)
