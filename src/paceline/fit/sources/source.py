"""What an epoch iterator reads: a `Source`, of which there is a class for each kind of data.

    Keras has looked at the data ─► Source ─► share, or alone: `batches`, which Keras iterates over
                                      │
          each new iterator: begin ───┼─── before each step: ask_for ─── at the end of the data: raise_fault
                                      │
          a snapshot: position ─► JSON and a small array ─► go_on: an iterator that goes on there

class                    data                            how a run comes back to its position
`TfData`, `Arrays`,      `tf.data`, arrays, and what     the iterator's own state, while that is small: nothing is read
  `OwnBatches`             is divided already              again. Else (much in shuffle buffers) as many iterators are
                                                           made as before, and the last one is read up to the position
`ByIndex`                `records`, `rows`, Grain,       from a few numbers (`data/indexed/readings.py`)
                           batches of one data worker
`PyDatasetItems`         `PyDataset`                     from its number: only the order of the items is drawn again
`Generator`              generator                       read from its beginning, as each iterator had read it
`ReadByWorkers`          function on workers             not at all: each worker's dataset begins anew
                           (`parameter_server/`)
"""

import dataclasses
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from paceline.data.batch_rows import DataDescription, describe_data
from paceline.data.fingerprint import FingerprintLog, compare, draws_by_chance, is_sharded
from paceline.data.items.item_rings import RingDivision
from paceline.data.own_rows.division import AnyDivision, Whole, form_of, work_of
from paceline.data.own_rows.index_batches import IndexDivision
from paceline.data.own_rows.local_batches import local_batches
from paceline.data.own_rows.replicated import replicated_components, usual_rows, words_on, wrapped
from paceline.data.own_rows.share_table import ShareTable
from paceline.fit.auto_shares import AutoShares, auto_shares_of
from paceline.fit.unbatched import check_batched
from paceline.strategy.base import SynchronousStrategy

_LOGGER = logging.getLogger("paceline")

_LINE_INTERVAL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Opened:
    """What Keras has made of the data of a call."""

    given: Any
    """The data, as the call was given them."""
    before_look: Any
    """What was noted of them before Keras looked at them."""
    adapter: Any
    """Keras's."""
    dataset: Any
    """Keras's, of global batches."""
    steps_per_epoch: int | None
    """As the user asks for."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where in its data a run stands."""

    batches: tuple[int, ...] = ()
    """That steps have taken of each iterator that was made, read or not; the last one is being read."""
    state: Any = None
    """Of that iterator, a uint8 vector; None: it has none, or a large one."""
    form: str = ""
    """Of the dataset that the state is of: it fits no iterator over another form (`division.form_of`)."""


class Source:
    """What is read. It gives each rank its rows of each batch, and comes back to a position.

    Args:
        opened: By Keras.
    """

    is_python: ClassVar[bool] = False
    """Whether Python makes the batches as they are read: how many there are may be known later only."""
    draws_ahead: ClassVar[bool] = True
    """Whether what reads ahead may draw from the process's random generators."""
    of_arrays: ClassVar[bool] = False
    """Whether Keras has made the batches, of arrays."""
    is_read_ahead = True
    """Whether batches are read before a step asks for them."""
    first_batches: Sequence[Any] = ()
    """With which every iterator begins, wherever the data stand."""
    counts_all: ClassVar[bool] = True
    """Whether a position needs to know of all iterators that have been made, not of the newest only."""
    was_used_up = False
    """Whether there was nothing left of the data when the newest iterator began."""
    is_local = False
    """Whether each rank reads batches of its own."""
    agreed_num_batches: int | None = None
    """Of an epoch, then."""
    py_dataset: Any = None
    """The `PyDataset` that is read; None: another kind of data."""

    def __init__(self, opened: Opened) -> None:
        self.given = opened.given
        self.adapter = opened.adapter
        self.steps_per_epoch = opened.steps_per_epoch
        self.num_batches: int | None = opened.adapter.num_batches
        """Of an epoch; None: it is not known."""
        self.dataset = opened.dataset
        """Of global batches."""
        self.batches = opened.dataset
        """What this process reads."""
        self.division: AnyDivision | None = None
        """Where a rank's rows are chosen; None: not asked yet."""
        self.description: DataDescription | None = None
        """What is known of the data, once they are shared."""
        self.num_asked = 0
        """Batches of the newest iterator that steps have asked for, with the step that has begun."""
        self.speaks = False
        """Whether this rank says what all ranks see."""
        self.counters: list[Any] = []
        """Are told of new iterators, and of what steps ask for."""
        self.shares: ShareTable | None = None
        """Of its batches; None: they stay."""
        self._sharing: AutoShares | None = None
        self._log: FingerprintLog | None = None
        self._to_compare: list[int] = []

    # Rows.

    def share(self, strategy: SynchronousStrategy, model: Any) -> None:
        """From now on `batches` are this rank's rows of each batch. Collective where ranks must agree on that.

        Args:
            strategy: Whose replicas share the rows.
            model: Whose `predict` reads them, else None.

        Raises:
            ValueError: the data are not batched.
        """
        group = strategy.group
        division = self._divided()
        replicated = replicated_components(self.dataset) if group.size > 1 else ()
        if replicated:
            division = Whole(words_on(self.dataset, replicated), replicated=replicated)
        self._sharing = auto_shares_of(strategy.world) if group.size > 1 else None
        if self._sharing is not None:
            if not division.follows_table and not isinstance(division, IndexDivision):
                division = Whole()
            self.shares = self._sharing.table() if division.follows_table else None
        is_chosen = group.size > 1 or isinstance(division, IndexDivision | RingDivision)
        self.division = division if is_chosen else None
        self._describe(work_of(self.division), strategy, model, replicated)
        if strategy.fit_group.size > 1:
            self._log = FingerprintLog(
                self.draws_by_chance,
                self.steps_per_epoch,
                len(self.first_batches),
                is_sharded=lambda: is_sharded(self.dataset),
            )
        self.batches = self.rows(group.rank, group.size, self._log)

    def rows(self, rank: int, size: int, log: FingerprintLog | None = None) -> Any:
        """A `tf.data.Dataset` of the rows of `rank` of each batch.

        Args:
            rank: One of the ranks that share the rows.
            size: How many they are.
            log: Where to note fingerprints of global batches; None: nowhere.
        """
        ahead, division = self.is_read_ahead, self.division
        return local_batches(self.dataset, rank, size, log=log, reads_ahead=ahead, division=division, table=self.shares)

    def whole(self) -> Any:
        """All rows of each batch, read as far ahead as the data allow: a `tf.data.Dataset`."""
        return self.dataset

    def alone(self) -> Any:
        """As `whole`, for a process that reads by itself, and may have to come back to a position."""
        return self.whole()

    def draws_by_chance(self) -> bool:
        """Whether chance decides which element gets which random numbers."""
        return draws_by_chance(self.dataset)

    def _divided(self) -> AnyDivision:
        """Where a rank's rows are chosen."""
        raise NotImplementedError

    def _describe(
        self, work: str, strategy: SynchronousStrategy, model: Any, replicated: tuple[bool, ...] = ()
    ) -> None:
        by_index = self.division.source if isinstance(self.division, IndexDivision) else None
        first, *_ = tf.nest.flatten(self.dataset.element_spec)
        is_scalar = isinstance(first, tf.TensorSpec) and first.shape.rank == 0  # Keras fails there
        of_keras = None if is_scalar else usual_rows(self.dataset) if replicated else self.adapter.batch_size
        self.description = describe_data(
            self.dataset,
            batch_size=of_keras if by_index is None else by_index.batch_size,
            num_batches=self.num_batches,
            is_local=self.is_local,
            steps_per_epoch=self.steps_per_epoch,
            of_arrays=self.of_arrays,
            work=work,
            facts=() if by_index is None else by_index.facts,
        )
        if replicated:
            spec = wrapped(self.description.element_spec, replicated)
            self.description = dataclasses.replace(self.description, element_spec=spec)
        if model is not None:
            check_batched(model, self.description, strategy, "predict_step")

    # Iterators.

    def begin(self) -> None:
        """A new iterator over `batches` is about to be made."""
        self.num_asked = 0
        for one in (*([] if self._log is None else [self._log]), *self.counters):
            one.new_iterator()
        self.begin_shares()

    def begin_shares(self) -> None:
        """From the next batch on, batches are numbered from 0, and have the shares that hold now."""
        if self.shares is not None and self._sharing is not None:
            self._sharing.begin(self.shares)

    def ask_for(self, num_batches: int) -> None:
        """Steps have asked for so many batches of the newest iterator, with the step that begins."""
        first, self.num_asked = self.num_asked, num_batches
        for one in self.counters:
            one.ask_for(num_batches)
        if self._log is not None:
            self._to_compare += filter(self._log.is_compared, range(first, num_batches))

    def break_off(self) -> None:
        """The last step was broken off."""
        self._to_compare = []

    def compare(self, strategy: Any) -> None:
        """Compares what ranks have read for the last step, after it. Collective, if a batch is one to compare.

        Raises:
            DesynchronizedError: ranks have read different data.
        """
        indices, self._to_compare = self._to_compare, []
        for index in indices:
            assert self._log is not None
            compare(self._log, index, strategy.fit_group)

    def raise_fault(self) -> None:
        """The newest iterator has no more batches: raises what has ended it, if that was an exception."""

    # Positions.

    @property
    def position_of_shares(self) -> Any:
        """As JSON, for `go_on_with_shares`, once the state of the newest iterator has been taken."""
        return None if self._sharing is None else self._sharing.position(self.shares)

    def go_on_with_shares(self, position: Any) -> None:
        """The newest iterator, which has just begun, is about to go on where one of another run was."""
        if position is not None and self._sharing is not None:
            self._sharing.go_on(self.shares, position)

    def counted(self, batches: Sequence[int]) -> tuple[int, ...]:
        """Of the batches taken from each iterator, what a position has."""
        return tuple(batches if self.counts_all else batches[-1:])

    def position(self, batches: Sequence[int], live: Any) -> Position:
        """Where a run stands that has taken so many batches of each iterator, and reads `live`, if that is not None."""
        del live
        return Position(self.counted(batches), None, form_of(self.batches))

    def made(self, dataset: Any) -> Any:
        """A new iterator over `dataset`: `batches`, or what reads them."""
        return iter(dataset)

    def go_on(self, dataset: Any, position: Position) -> Any:
        """An iterator over `dataset` that goes on at a position of another run."""
        raise NotImplementedError

    def pass_over(self, batches: Sequence[int]) -> None:
        """Leaves the data as they are after iterators from which so many batches each have been read.

        Each draws its seeds when it is made; what has been read matters only where they are one stream, and only once
        somebody goes on with it (`generators.py`).
        """


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
