"""A source of which rows are read by their numbers, as a `tf.data.Dataset`; each rank reads its own rows only.

    first read of an iterator ─► epoch, first batch ─► numbers of batches ─► rows of a rank in each ─► read ─► parse
                   (`readings.py`)                        (`epoch_order.py`, `batch_rows.local_slice`)

The numbers are a few, so is the position. All else is prefetched as in any pipeline.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.data.batch_rows import local_slice
from paceline.data.compat import with_sources
from paceline.data.epoch_order import EpochOrder
from paceline.data.fingerprint import FingerprintLog
from paceline.data.python_faults import keeps_fault
from paceline.data.readings import EpochReading

_SOURCE, _READING = "_paceline_index_source", "_paceline_reading"


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
    read_spec: tuple[Any, ...]
    """A `tf.TensorSpec` of a row for each."""
    parse: Any
    """A traced function of a row's components and seed, called in the graph; None: rows stay as they are read."""
    element_spec: Any
    """Of a row, parsed."""
    name: str
    """For a line of the log."""
    facts: tuple[str, ...]
    """What must be the same on all ranks."""

    @property
    def num_batches(self) -> int:
        """Of an epoch."""
        rows, size = self.order.num_rows, self.batch_size
        return rows // size if self.drop_remainder else -(-rows // size)

    def dataset(self) -> Any:
        """The global batches, as the script gets them."""
        reading = EpochReading(self.number, self.num_batches)
        counted = self.batches(reading, 0, 1).apply(tf.data.experimental.assert_cardinality(self.num_batches))
        setattr(counted, _SOURCE, self)
        return counted

    def batches(
        self, reading: EpochReading, rank: int, size: int, *, repeats: int = 1, log: FingerprintLog | None = None
    ) -> Any:
        """A rank's rows of each global batch.

        Args:
            reading: Says which epoch an iterator reads.
            rank: This rank.
            size: Number of ranks.
            repeats: Epochs that an iterator reads; negative: without end.
            log: Where the epoch of a batch is noted, to be compared over ranks; None: nowhere.
        """
        own = self._begun(reading).flat_map(
            lambda epoch, first: (
                tf.data.Dataset.range(first, tf.int64.max if repeats < 0 else repeats * self.num_batches).map(
                    lambda number: (epoch + number // self.num_batches, number % self.num_batches, number)
                )
                if self.num_batches
                else tf.data.Dataset.range(0).map(lambda number: (epoch, number, number))
            )
        )

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def made(epoch: Any, batch: Any, number: Any) -> Any:
            noted = [] if log is None else [log.note(number, epoch)]
            with tf.control_dependencies(noted):
                first_row = batch * self.batch_size
                rows = tf.minimum(tf.constant(self.batch_size, tf.int64), self.order.num_rows - first_row)
                begin, end = local_slice(rows, rank, size)
                return self._rows_at(epoch, first_row + begin, first_row + end)

        return own.map(made, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def _rows_at(self, epoch: Any, begin: Any, end: Any) -> Any:
        specs = tf.nest.flatten(self.element_spec)
        # `map_fn` of no rows must know their shapes.
        needs_row = self.parse is not None and not all(spec.shape.is_fully_defined() for spec in specs)
        num_own = end - begin
        if needs_row:
            begin = tf.minimum(begin, self.order.num_rows - 1)
            end = tf.maximum(end, begin + 1)

        @keeps_fault
        def read(epoch: Any, begin: Any, end: Any) -> Any:
            rows = self.order.rows(int(epoch), int(begin), int(end))
            return [*self.read(rows), self.order.seeds(int(epoch), rows)]

        types = [spec.dtype for spec in self.read_spec]
        # Stateless for TensorFlow: a stateful function would forbid saving an iterator's position.
        *parts, seeds = tf.numpy_function(read, [epoch, begin, end], [*types, tf.int64], stateful=False)
        for part, spec in zip(parts, self.read_spec, strict=True):
            part.set_shape([None, *spec.shape])
        seeds.set_shape([None, 2])
        flat = parts
        if self.parse is not None:
            flat = tf.map_fn(lambda row: list(self.parse(*row)), [*parts, seeds], fn_output_signature=specs)
        if needs_row:
            flat = [part[:num_own] for part in flat]
        for part, spec in zip(flat, specs, strict=True):
            part.set_shape([None, *spec.shape])
        return tf.nest.pack_sequence_as(self.element_spec, flat)

    def _begun(self, reading: EpochReading) -> Any:
        @keeps_fault
        def begin(_: Any) -> Any:
            self.begin_epoch()
            return reading.begin()

        return tf.data.Dataset.from_tensors(np.int64(0)).map(
            lambda argument: tuple(
                tf.ensure_shape(number, [])
                for number in tf.numpy_function(begin, [argument], [tf.int64, tf.int64], stateful=False)
            )
        )


def source_of(dataset: Any) -> IndexSource | None:
    """That whose batches this stage is; None: it is another one."""
    return getattr(dataset, _SOURCE, None)


def with_reading(dataset: Any, reading: EpochReading) -> Any:
    """`dataset`, remembered to be read as `reading` says."""
    setattr(dataset, _READING, reading)
    return dataset


def reading_of(dataset: Any) -> EpochReading | None:
    """That of the dataset of local batches that `dataset` is, or is made of; None: it is not of a source by index."""
    return next((getattr(one, _READING) for one in with_sources(dataset) if hasattr(one, _READING)), None)
