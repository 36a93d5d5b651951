"""Tracks the position of a `fit` in its data, and restores it: what each source does for that is the source's."""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from paceline.data.own_rows.replicated import unwrapped
from paceline.errors import ConfigurationError
from paceline.fit.snapshots.data_position import DATA, GENERATORS, SOURCE, Begin, Cursor, DataPosition, path_of
from paceline.fit.snapshots.source_state import SourceState
from paceline.fit.sources.source import Source
from paceline.resilience.object_state import Frozen, Tensors, encode, frozen
from paceline.resilience.parts import Part, Scope
from paceline.resilience.random_generators import capture_generators as capture_random
from paceline.resilience.random_generators import drawn_from, restore_generators

_LOGGER = logging.getLogger("paceline")


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
        self._source: Source = epochs.source
        self._source.speaks = is_chief
        self.held = SourceState(self._source.py_dataset if follows_source else None, is_chief)
        """What a `PyDataset` holds besides its data."""

    @property
    def element_spec(self) -> Any:
        """Of the data's batches."""
        return unwrapped(self._epochs._distributed_dataset.element_spec)

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
            self._batches[-1] = self._source.num_asked

    def step_taken(self, end_step: int) -> None:
        """The step that ends with `end_step` has been taken."""
        self._step = end_step + 1
        self._batches[-1] += self._pending_batches
        self._steps_seen = self._epochs._steps_seen

    @property
    def cursor(self) -> Cursor:
        """How far the run has read."""
        return Cursor(self._epoch, self._step, self._source.counted(self._batches), self._steps_seen)

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
        of_source = self._source.position(self._batches, self._live)
        shares = self._source.position_of_shares
        return DataPosition(self.cursor, begin, self._epochs._num_batches, of_source, shares, is_over)

    # Between Keras's epoch iterator and its dataset.

    def make(self, dataset: Any) -> Any:
        """A new iterator over `dataset`: at its beginning, or where the run goes on."""
        target, self._target = self._target, None
        if target is None:
            self._begin = self._begin_of_epoch
            self._batches.append(0)
            self._steps_seen = 0
            self._live = self._source.made(dataset)
        else:
            self._source.go_on_with_shares(target.shares)
            self._live = self._source.go_on(dataset, target.of_source)
            self._step, self._steps_seen = target.cursor.step, target.cursor.steps_seen
            self._batches = [*target.cursor.batches]
            self._source.num_asked = self._batches[-1] if self._batches else 0
        return self._live

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
            self.held.put_back(target.begin.source.value)
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
        if then is None or now is None or then == now or self._source.is_python:
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
        read_from = drawn_from(target.begin.generators.value) if self._source.draws_ahead else []
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
        """See `Source.pass_over`."""
        self._batches += batches
        self._source.pass_over(batches)

    def _now(self) -> Begin:
        tensors: Tensors = {}
        return Begin(frozen(encode(capture_random(), tensors, path_of(GENERATORS)), tensors), self._source_now())

    def _source_now(self) -> Frozen:
        tensors: Tensors = {}
        return frozen(self.held.encode(tensors, path_of(SOURCE)), tensors)
