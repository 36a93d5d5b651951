"""Tracks the position of a `fit` in its data, and restores it.

kind                      how a run comes back to its position
tf.data, arrays           the iterator's own state, while that is small: nothing is read again
the same, with much       as many iterators are made as before, the last one is read up to the position
  in shuffle buffers
PyDataset                 from its position: only the order of the batches is drawn again (`SourceState`)
source by index           from its position, a few numbers (`data/indexed/readings.py`)
generator                 read from its beginning, as each iterator had read it (`data/items/streams.py`)
function on workers       not at all: each worker's dataset begins anew
"""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from paceline.data.items.streams import num_read_behind
from paceline.errors import ConfigurationError
from paceline.fit import compat
from paceline.fit.dataset_functions import ReadElsewhere
from paceline.fit.snapshots.data_position import (
    DATA,
    GENERATORS,
    SOURCE,
    Begin,
    Cursor,
    DataPosition,
    SavedIterator,
    SourceState,
    path_of,
)
from paceline.fit.snapshots.data_replay import Replaying, begin_at, draw_again, read_stream_again, skip_batches_later
from paceline.resilience.object_state import Frozen, Tensors, encode, frozen
from paceline.resilience.parts import Part, Scope
from paceline.resilience.random_generators import capture_generators as capture_random
from paceline.resilience.random_generators import drawn_from, restore_generators

_LOGGER = logging.getLogger("paceline")


class Unfollowed:
    """Stands in for a cursor where nobody follows an epoch iterator."""

    def iterable(self, dataset: Any) -> Any:
        """As it is."""
        return dataset

    def steps(self, items: Iterator[Any]) -> Iterator[Any]:
        """All of them."""
        return items


class DataCursor:
    """Follows one epoch iterator of Keras.

    Args:
        epochs: The `TFEpochIterator` of a `fit`.
        is_chief: Whether this rank says what all ranks see.
        follows_source: Whether it looks at what a `PyDataset` holds, which costs time in each epoch.
    """

    def __init__(self, epochs: Any, is_chief: bool, *, follows_source: bool = True) -> None:
        self._epochs = epochs
        self._is_chief = is_chief
        self._epoch = self._step = self._steps_seen = 0
        self._batches: list[int] = []
        self._begin = self._begin_of_epoch = Begin(Frozen(None, {}), Frozen(None, {}))
        self._is_over = False
        self._live: Any = None
        self._pending_batches = 0
        self._target: DataPosition | None = None
        self._is_due_to_skip = False
        self._is_python = isinstance(epochs.data_adapter, (compat.PyDatasetAdapter, compat.GeneratorDataAdapter))
        self._iterator = SavedIterator(epochs, is_chief)
        self.source = SourceState(self.python_source if follows_source else None, is_chief)
        """What a `PyDataset` holds besides its data."""
        self._has_said = False

    @property
    def element_spec(self) -> Any:
        """Of the data's batches."""
        return self._epochs._distributed_dataset.element_spec

    def resume_at(self, position: DataPosition) -> None:
        """The next epoch goes on from `position`."""
        self._target = position
        self._is_due_to_skip = True

    def begin_epoch(self, epoch: int) -> None:
        """Epoch `epoch` (from 0) begins."""
        self._epoch, self._step, self._is_over = epoch, 0, False

    def end_steps(self) -> None:
        """The epoch has no more steps."""
        self._is_over = True
        self._steps_seen = self._epochs._steps_seen

    def validation_ends(self) -> None:
        """Its iterator is not read on."""
        if self._batches:
            self._batches[-1] = self._epochs.num_taken

    def step_taken(self, end_step: int) -> None:
        """The step that ends with `end_step` has been taken."""
        self._step = end_step + 1
        self._batches[-1] += self._pending_batches
        self._steps_seen = self._epochs._steps_seen

    @property
    def cursor(self) -> Cursor:
        """How far the run has read."""
        batches = self._batches if self._epochs.reading is None else self._batches[-1:]
        return Cursor(self._epoch, self._step, tuple(batches), self._steps_seen)

    @property
    def python_source(self) -> Any:
        """The `PyDataset` that is read; None: another kind of data."""
        return getattr(self._epochs.data_adapter, "py_dataset", None)

    def part(self, has_stopped: Callable[[], bool]) -> Part:
        """The position in the data; `has_stopped` says whether a callback has ended the epoch in this step."""
        return Part(
            DATA,
            Scope.RANK,
            lambda arrays: self.position(has_stopped=has_stopped()).captured(arrays),
            lambda saved: self.resume_at(DataPosition.saved(saved)),
        )

    def position(self, *, has_stopped: bool) -> DataPosition:
        """Where the run stands."""
        is_over, begin = self._is_over or has_stopped, self._begin
        if is_over:  # Keras has told the source that the epoch ends, and will not say so again
            begin = dataclasses.replace(begin, source=self._source_now())
        return DataPosition(self.cursor, begin, self._epochs._num_batches, *self._iterator.state(self._live), is_over)

    # Between Keras's epoch iterator and its dataset.

    def iterable(self, dataset: Any) -> "_Followed":
        """`dataset`, whose iterators are noted."""
        return _Followed(self, dataset)

    def make(self, dataset: Any) -> Any:
        """A new iterator over `dataset`: at its beginning, or where the run goes on."""
        target, self._target = self._target, None
        if target is None:
            self._begin = self._begin_of_epoch
            self._batches.append(0)
            self._steps_seen = 0
            self._live = iter(dataset)
        else:
            self._live = self._come_to(target, dataset)
            self._step, self._steps_seen = target.cursor.step, target.cursor.steps_seen
            self._batches = [*target.cursor.batches]
            self._epochs.num_taken = self._batches[-1] if self._batches else 0
        if not self._has_said:
            self._has_said = True
            if target is None:
                self._iterator.made(self._live)  # and says now what would not be repeated
            self._iterator.warn_if_unseeded()
        return self._live

    def _come_to(self, target: DataPosition, dataset: Any) -> Any:
        if isinstance(dataset, ReadElsewhere):
            return dataset.begin_anew(is_told=self._is_chief)
        *before, current = target.cursor.batches or (0,)
        if self._epochs.reading is not None:
            self._epochs.reading.begin_at(current)
            return iter(dataset)
        if target.state is not None and target.form == self._iterator.form:
            self._epochs.draws.go_on(target.cursor.batches)
            live = iter(dataset)
            self._iterator.put_back(live, target.state)
            return live
        adapter = self._epochs.data_adapter
        if isinstance(adapter, compat.GeneratorDataAdapter):
            return read_stream_again(self._epochs.stream, dataset, before, current, self._is_chief)
        if self._epochs.draws.are_counted:
            self._epochs.draws.go_on(target.cursor.batches)
        else:
            draw_again(self._epochs._distributed_dataset, before, self._is_chief)
        if isinstance(adapter, compat.PyDatasetAdapter) and adapter.enqueuer is None:
            begin_at(adapter, current)
            current = 0
        live = iter(dataset)
        self._iterator.made(live)
        Replaying(current, self._is_chief).read(live, current)
        return live

    def steps(self, items: Iterator[Any]) -> Iterator[Any]:
        """Keras's steps of an epoch, without those that have been taken."""
        target = self._target if self._is_due_to_skip else None
        self._is_due_to_skip = False
        # Before Keras tells the source that an epoch begins, which may draw numbers, in other threads, too.
        after: Any = None
        if target is None:
            self._begin_of_epoch = now = self._now()
            is_read = any(self._batches[-1:])  # in an earlier epoch; Keras may go on with it, or make another
            self._begin = Begin(self._begin.generators, now.source) if is_read else now
        else:
            self._epochs._num_batches = self._num_batches_in(target)
            self._begin = self._begin_of_epoch = target.begin
            after = capture_random()
            restore_generators(target.begin.generators.value)
            self.source.put_back(target.begin.source.value)
            if target.is_over:
                self._come_behind_steps(target)
                self._end_replay(target, after)
                return
        for item in items:
            begin_step, end_step = self._first_and_last(item)
            if target is not None and end_step < target.cursor.step:
                if end_step + 1 >= target.cursor.step:
                    self._end_replay(target, after)
                    after = None
                    self._epochs._steps_seen = target.cursor.steps_seen
                continue
            self._pending_batches = end_step - begin_step + 1
            yield item

    def _num_batches_in(self, target: DataPosition) -> int | None:
        """Those of an epoch: as the data say; where they do not, or may say so later, as they had been found to be."""
        then = target.num_batches
        now: int | None = self._epochs._num_batches
        if then is None or now is None or then == now or self._is_python:
            return then
        if self._is_chief:
            _LOGGER.warning(
                "the dataset now has %d batches, but had %d when the snapshot was taken (another batch size?). This "
                "epoch continues after the same number of batches, so rows may be read twice or not at all. Later "
                "epochs read each row once.",
                now,
                then,
            )
        return now

    def _end_replay(self, target: DataPosition, generators: Any) -> None:
        """The data have been read up to `target`: `generators` are put back, but for those that the data draw from.

        A generator is read ahead in another thread, further in each run. It draws on from where its last batch left it.
        """
        is_py_dataset = isinstance(self._epochs.data_adapter, compat.PyDatasetAdapter)  # draws where an epoch begins
        read_from = [] if is_py_dataset else drawn_from(target.begin.generators.value)
        restore_generators(generators, left_out=read_from)

    def _come_behind_steps(self, target: DataPosition) -> None:
        """What Keras does in an epoch has been done, by it and by the source: only its iterator is not there."""
        epochs, seen = self._epochs, target.cursor.steps_seen
        live = iter(epochs._get_iterator())
        has_run_out = target.num_batches is not None and seen >= target.num_batches
        epochs._current_iterator = None if has_run_out else live  # as Keras lets go of it
        epochs._steps_seen = seen

    def _first_and_last(self, item: Any) -> tuple[int, int]:
        """The steps that `item` of an epoch stands for; older versions of Keras tell only the first.

        Raises:
            ConfigurationError: there may be more of them.
        """
        if len(item) == 2 and int(self._epochs.steps_per_execution) > 1:
            raise ConfigurationError(
                f"snapshots with steps_per_execution={int(self._epochs.steps_per_execution)} need a newer Keras: "
                f"Keras {keras.__version__} does not tell how many steps were made. Upgrade Keras, or compile "
                "the model with steps_per_execution=1. [steps-per-execution]"
            )
        return item[0], item[-2]

    def advance(self, batches: Sequence[int]) -> None:
        """Leaves the data as they are after iterators from which so many `batches` each have been read.

        Each draws its seeds when it is made; what has been read matters only where they are one stream, and only once
        somebody goes on with it (`data_replay.py`).
        """
        adapter = self._epochs.data_adapter
        self._batches += batches
        if isinstance(adapter, compat.GeneratorDataAdapter):
            skip_batches_later(
                self._epochs.given, num_read_behind(len(compat.first_batches(adapter)), batches), self._is_chief
            )
            return
        if self._epochs.reading is None:  # numbers of epochs are with the generators
            if self._epochs.draws.are_counted:
                self._epochs.draws.pass_over(batches)
            else:
                draw_again(self._epochs._distributed_dataset, batches, self._is_chief)

    def _now(self) -> Begin:
        tensors: Tensors = {}
        return Begin(frozen(encode(capture_random(), tensors, path_of(GENERATORS)), tensors), self._source_now())

    def _source_now(self) -> Frozen:
        tensors: Tensors = {}
        return frozen(self.source.encode(tensors, path_of(SOURCE)), tensors)


class _Followed:
    """A dataset whose iterators a cursor makes."""

    def __init__(self, cursor: DataCursor, dataset: Any) -> None:
        self._cursor = cursor
        self._dataset = dataset

    def __iter__(self) -> Any:
        return self._cursor.make(self._dataset)
