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
        self,
        reading: EpochReading,
        rank: int,
        size: int,
        *,
        repeats: int = 1,
        log: FingerprintLog | None = None,
        behind: Callable[[list[Any]], Any] | None = None,
    ) -> Any:
        """A rank's rows of each global batch.

        Args:
            reading: Says which epoch an iterator reads.
            rank: This rank.
            size: Number of ranks.
            repeats: Epochs that an iterator reads; negative: without end.
            log: Where the epoch of a batch is noted, to be compared over ranks; None: nowhere.
            behind: Makes an element of the tensors of a batch; None: they are packed as `element_spec` has them.
        """
        end = tf.int64.max if repeats < 0 else repeats * self.num_batches

        def numbered(epoch: Any, first: Any) -> Any:
            numbers = tf.data.Dataset.range(first, end)
            return tf.data.Dataset.zip((tf.data.Dataset.from_tensors(epoch).repeat(), numbers))

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def made(epoch: Any, number: Any) -> Any:
            with tf.control_dependencies([] if log is None else [log.note(number, epoch)]):
                flat = self._rows_of(epoch, number, rank, size)
            return tf.nest.pack_sequence_as(self.element_spec, flat) if behind is None else behind(flat)

        return self._begun(reading).flat_map(numbered).map(made, num_parallel_calls=tf.data.AUTOTUNE)

    def _rows_of(self, first_epoch: Any, number: Any, rank: int, size: int) -> list[Any]:
        """The tensors of a rank's rows of the batch with this number, counted from the beginning of an epoch."""
        specs = tf.nest.flatten(self.element_spec)
        # `map_fn` of no rows must know their shapes.
        needs_row = self.parse is not None and not all(spec.shape.is_fully_defined() for spec in specs)

        # In Python, as it costs less there than in the graph.
        @keeps_fault
        def read(first_epoch: Any, number: Any) -> Any:
            repetition, batch = divmod(int(number), self.num_batches)
            epoch, first_row = int(first_epoch) + repetition, batch * self.batch_size
            begin, end = local_slice(min(self.batch_size, self.order.num_rows - first_row), rank, size)
            begin, end = first_row + begin, first_row + end
            wanted = (min(begin, self.order.num_rows - 1), max(end, begin + 1)) if needs_row else (begin, end)
            rows = self.order.rows(epoch, wanted[0], min(wanted[1], self.order.num_rows))
            parts = self.read(rows)
            return [*parts, self.order.seeds(epoch, rows), np.int64(end - begin)] if self.parse is not None else parts

        types = [spec.dtype for spec in self.read_spec] + ([] if self.parse is None else [tf.int64, tf.int64])
        # Stateless for TensorFlow: a stateful function would forbid saving an iterator's position.
        flat = tf.numpy_function(read, [first_epoch, number], types, stateful=False)
        for part, spec in zip(flat, self.read_spec, strict=False):
            part.set_shape([None, *spec.shape])
        if self.parse is not None:
            *parts, seeds, num_own = flat
            seeds.set_shape([None, 2])
            flat = tf.map_fn(lambda row: list(self.parse(*row)), [*parts, seeds], fn_output_signature=specs)
            flat = [part[: tf.ensure_shape(num_own, [])] for part in flat] if needs_row else flat
        for part, spec in zip(flat, specs, strict=True):
            part.set_shape([None, *spec.shape])
        return list(flat)

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
