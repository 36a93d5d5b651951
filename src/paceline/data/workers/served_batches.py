"""The batches that one data worker makes for all ranks: those of one worker, in rank order, epoch after epoch.

    data worker:  epoch 0                                         end    epoch 1
                  rows of rank 0 │ rank 1 ║ rank 0 │ rank 1 ║ … ║ - │ - ║ rank 0 │ rank 1 ║ …
                        │           │         │        │
    rank 0: ◄───────────┘           │   ◄─────┘        │          a round (║) has an element for each rank
    rank 1: ◄───────────────────────┘   ◄──────────────┘

tf.data's service deals a dataset without end to consumers in turn (coordinated reads). One such job lasts over
epochs: shuffles go on drawing their seeds, and `cache` keeps what it has. Where an iterator is broken off, or a run
resumes, the next job begins where it must: the data worker makes as many iterators as were made before, which draws
the seeds of their shuffles, and skips batches.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from paceline.comm.world import current_world
from paceline.data import compat
from paceline.data.faults import keeps_fault
from paceline.data.fingerprint import FingerprintLog, draws_by_chance
from paceline.data.freed_iterators import freed_in_thread
from paceline.data.indexed.index_source import mark_as_source
from paceline.data.indexed.readings import MadeIterators
from paceline.data.own_rows.share_table import ShareTable
from paceline.data.workers.endless_rounds import ENDLESS, endless_rounds, parts_of_batches


@dataclass(frozen=True)
class ServedBatches:
    """A source of the batches of a dataset that a data worker reads; see `index_source.IndexedBatches`."""

    number: int
    """Of this source, in the order in which the script makes them."""
    given: Any
    """The script's dataset."""
    target: str
    """Of the dispatcher."""
    compression: str | None
    name: str = "batches of the data worker"
    follows_table: ClassVar[bool] = False
    """See `index_source.IndexedBatches`."""
    _streams: dict[tuple[int, int, bool], "_Stream"] = field(default_factory=dict)

    @functools.cached_property
    def known_batches(self) -> int | None:
        """Of an epoch; None: the data do not say."""
        number = int(self.given.cardinality())
        return None if number == tf.data.UNKNOWN_CARDINALITY else ENDLESS if number < 0 else number

    @property
    def num_batches(self) -> int:
        """Of an epoch, as far as it is known."""
        return ENDLESS if self.known_batches is None else self.known_batches

    @property
    def work(self) -> str:
        """What each rank does, for a line of the log."""
        return "each rank takes its rows of each batch from the data worker, which makes the batches"

    @property
    def batch_size(self) -> int | None:
        """Rows of a full batch, if TensorFlow knows."""
        number = compat.batch_size_of(self.given)
        return number if number > 0 else None

    @property
    def facts(self) -> tuple[str, ...]:
        """What must be the same on all ranks."""
        return (f"{self.known_batches} batches of {self.given.element_spec}",)

    def reading(self, repeats: int = 1) -> MadeIterators:
        """See `index_source.IndexedBatches`."""
        return MadeIterators(self.number, repeats)

    def dataset(self) -> Any:
        """The global batches, which this process reads alone, as the script gets them."""
        batches = self._read(self._stream(0, 1, alone=True), self.reading(), 1, None, None)
        if self.known_batches is not None:
            length = tf.data.INFINITE_CARDINALITY if self.known_batches == ENDLESS else self.known_batches
            batches = batches.apply(tf.data.experimental.assert_cardinality(length))
        return mark_as_source(batches, self)

    def batches(
        self,
        reading: MadeIterators,
        rank: int,
        size: int,
        *,
        repeats: int = 1,
        log: FingerprintLog | None = None,
        behind: Callable[[list[Any]], Any] | None = None,
        table: ShareTable | None = None,
    ) -> Any:
        """A rank's rows of each global batch; see `IndexSource.batches`."""
        del table  # the data worker has divided them
        return self._read(self._stream(rank, size), reading, repeats, log, behind)

    def _stream(self, rank: int, size: int, *, alone: bool = False) -> "_Stream":
        return self._streams.setdefault((rank, size, alone), _Stream(self, rank, size, alone=alone))

    def _read(
        self, stream: "_Stream", reading: MadeIterators, repeats: int, log: FingerprintLog | None, behind: Any
    ) -> Any:
        spec = self.given.element_spec
        flat_specs = parts_of_batches(spec)
        types = [one.dtype for one in flat_specs]
        shapes = [one.shape for one in flat_specs]

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def begun(_: Any) -> Any:
            begin = keeps_fault(lambda: stream.begin(reading, repeats))
            iterator, *numbers = tf.py_function(begin, [], [tf.resource, *[tf.int64] * 4])
            serial, epoch, first, end = (tf.ensure_shape(number, []) for number in numbers)

            def next_of(number: Any) -> Any:
                flat = tf.raw_ops.IteratorGetNext(iterator=iterator, output_types=types, output_shapes=shapes)
                return (number, *flat)

            def is_batch(number: Any, is_made: Any, *_: Any) -> Any:
                def ended() -> Any:
                    note = keeps_fault(lambda serial, number: np.bool_(stream.ended(int(serial), int(number))))
                    return tf.ensure_shape(tf.numpy_function(note, [serial, number], tf.bool), [])

                return tf.cond(is_made, lambda: True, ended)

            do_not = tf.autograph.experimental.do_not_convert
            if repeats == 1:
                return (
                    tf.data.Dataset.range(first, end)
                    .map(do_not(next_of))
                    .take_while(do_not(is_batch))
                    .map(do_not(lambda number, _, *flat: (epoch, number, *flat)))
                )
            rounds = tf.data.Dataset.range(np.int64(ENDLESS)).map(do_not(next_of))
            rounds = rounds.filter(do_not(lambda _, is_made, *_flat: is_made))
            return (
                tf.data.Dataset.range(first, end)
                .zip(rounds)
                .map(do_not(lambda number, of_round: (epoch, number, *of_round[2:])))
            )

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def made(epoch: Any, number: Any, *flat: Any) -> Any:
            with tf.control_dependencies([] if log is None else [log.note(number, epoch)]):
                flat = tuple(map(tf.identity, flat))
            if behind is not None and all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(spec)):
                return behind(list(flat))
            return tf.nest.pack_sequence_as(spec, flat, expand_composites=True)

        return tf.data.Dataset.from_tensors(np.int64(0)).flat_map(begun).map(made)


class _Stream:
    """What this process reads of the data worker, one epoch after the other.

    Args:
        source: Whose batches.
        rank: This rank.
        size: Number of ranks that read together.
        alone: Whether this process reads for itself: whole batches.
    """

    def __init__(self, source: ServedBatches, rank: int, size: int, *, alone: bool) -> None:
        self._source = source
        self._rank = rank
        self._size = size
        self._is_alone = alone
        self._lock = threading.Lock()
        self._iterator: Any = None
        self._serial = 0
        """Of the job that is read."""
        self._epoch = 0
        """That is read."""
        self._reading: MadeIterators | None = None
        """By which it is read; None: nothing is, or more than one epoch."""
        self._stride = 1 if source.known_batches in (None, ENDLESS) else 2
        """Iterators from one that is read to the next: see `MadeIterators`."""
        self._num_batches = source.known_batches
        """Of an epoch; None: it is not known yet."""
        self._ended_at: int | None = None
        """With how many batches the epoch that is read has ended; None: nobody has seen its end."""

    def begin(self, reading: MadeIterators, repeats: int) -> tuple[Any, int, int, int, int]:
        """Called by TensorFlow when an iterator is first read: what it reads, which job, epoch, first batch and end."""
        with self._lock:
            epoch, first = reading.begin()
            has_read_all = self._has_read_all(reading)
            if has_read_all and (epoch, first) == (self._epoch + self._stride, 0):
                self._skip_to_end()
            else:
                self._stride = epoch - self._epoch if has_read_all and epoch > self._epoch else self._stride
                self._start(epoch, first, repeats)
            self._epoch, self._ended_at = epoch, None
            self._reading = reading if repeats == 1 else None
            return compat.resource_of(self._iterator), self._serial, epoch, first, self._end(reading, repeats)

    def _end(self, reading: MadeIterators, repeats: int) -> int:
        """Behind how many batches an iterator ends at the latest: it must not read what another one shall."""
        known = self._source.num_batches
        if repeats != 1:
            return ENDLESS if repeats < 0 else min(ENDLESS, repeats * known)
        return known if self._num_batches is None or not reading.is_counted else self._num_batches

    def ended(self, serial: int, num_batches: int) -> bool:
        """Called by TensorFlow behind the last batch of an epoch; False."""
        with self._lock:
            if serial == self._serial:
                self._ended_at = num_batches
        return False

    def _has_read_all(self, reading: MadeIterators) -> bool:
        """Whether steps have asked for all of the epoch: the same on all ranks, however far TensorFlow has read."""
        last = self._reading
        asked = None if last is None else last.num_asked_before if last is reading else last.num_asked
        if asked is None:
            return False
        if self._num_batches is not None:
            return asked >= self._num_batches
        if self._ended_at is None or asked <= self._ended_at:
            return False
        if not draws_by_chance(self._source.given):  # else another epoch may be longer
            self._num_batches = self._ended_at
        return True

    def _skip_to_end(self) -> None:
        while self._ended_at is None:
            is_made, *_ = next(self._iterator)
            if not bool(is_made):
                return

    def _skip(self, num_batches: int) -> None:
        while num_batches:
            is_made, *_ = next(self._iterator)
            num_batches -= bool(is_made)

    def _start(self, epoch: int, first: int, repeats: int) -> None:
        """Another job, which begins with batch `first` of `epoch`."""
        source, self._serial = self._source, self._serial + 1
        passed, num_left = 0, 0
        if repeats != 1 and self._num_batches is None:
            first, num_left = 0, first
        elif repeats != 1:
            passed, first = divmod(first, max(self._num_batches or 0, 1))
        stride = 1 if repeats != 1 else self._stride
        name = f"paceline-{source.number}-{self._size}-{epoch + passed}-{first}-{stride}"
        tf_service = tf.data.experimental.service
        rounds = endless_rounds(source.given, self._size, epoch + passed, first, stride)
        identity = tf_service.register_dataset(source.target, rounds, source.compression, dataset_id=name)
        job = f"alone-{current_world().rank}" if self._is_alone else "together"
        rows = tf_service.from_dataset_id(
            tf_service.ShardingPolicy.OFF,
            source.target,
            identity,
            parts_of_batches(source.given.element_spec),
            job_name=f"{job}-{self._serial}",
            consumer_index=self._rank,
            num_consumers=self._size,
        )
        # While one rank freed the iterator before, all others would wait for its next round.
        self._iterator = freed_in_thread(iter(rows))
        self._skip(num_left)
