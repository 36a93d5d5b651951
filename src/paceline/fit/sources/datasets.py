"""Datasets of TensorFlow as sources: those of a script, of arrays, of this rank's own batches, of rows by index."""

import functools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.data.fingerprint import FingerprintLog, random_operations
from paceline.data.indexed.index_source import reading_of
from paceline.data.order.iterator_state import (
    NoIteratorStateError,
    estimated_state_bytes,
    iterator_state,
    num_shuffles,
    restore_iterator,
)
from paceline.data.order.repetitions import ScriptsDraws, with_own_draws
from paceline.data.order.shuffles import draw_as_iterators, draws_as_read, shuffles_made_later
from paceline.data.own_rows.auto_shard import how_divided
from paceline.data.own_rows.division import AnyDivision, division_in, form_of, work_of
from paceline.data.own_rows.index_batches import IndexDivision
from paceline.data.own_rows.local_batches import (
    divided,
    is_local,
    local_batches,
    mark_as_local,
)
from paceline.data.own_rows.uneven import followed_by_empty_batches, shapes_of_another
from paceline.fit.sources.source import Opened, Position, Replaying, Source
from paceline.resilience.random_generators import capture_generators, restore_generators, tensorflow_is_seeded
from paceline.strategy.base import SynchronousStrategy

_LOGGER = logging.getLogger("paceline")

MAX_STATE_BYTES = 1 << 20
"""Iterators whose state is larger are replayed: a snapshot should not write shuffle buffers every minute."""


class TfData(Source):
    """A `tf.data.Dataset`, whose iterators have a state; a shuffle draws its seeds for each of them."""

    may_have_state = True
    """Whether iterators are known to have a state that is worth keeping, until one has not."""
    ignores_state_outside = False
    """Whether random numbers are drawn before the first element of an iterator only."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.counters = [ScriptsDraws()]
        self._num_shuffles = 0
        """In the state of an iterator that has not come to an end of rows."""
        self._has_told = False

    def alone(self) -> Any:
        """See `Source`."""
        if isinstance(by_index := divided(self.dataset), IndexDivision):
            self.dataset = local_batches(self.dataset, 0, 1, division=by_index)
        self.dataset, *self.counters = with_own_draws(self.dataset)
        return self.dataset

    def made(self, dataset: Any) -> Any:
        """See `Source`; says once what of the data could not be repeated.

        Later, even before the first step, a prefetch may have read some shuffles to their end.
        """
        live = iter(dataset)
        if not self._has_told:
            if self.may_have_state and (state := self._state_of(live)) is not None:
                self._num_shuffles = num_shuffles(state) + len(shuffles_made_later(self.batches))
            self._tell_of_no_seed()
        return live

    def position(self, batches: Sequence[int], live: Any) -> Position:
        """See `Source`."""
        state = None
        if self.may_have_state and live is not None:
            state = self._state_of(live) if self._seems_small else None
            if state is None or state.nbytes > MAX_STATE_BYTES:
                self.may_have_state, state = False, None
            else:
                number = num_shuffles(state)
                self._num_shuffles = max(self._num_shuffles, number)
                state = state if number == self._num_shuffles else None  # at the end of an epoch; replayed
        return Position(tuple(batches), state, form_of(self.batches))

    def go_on(self, dataset: Any, position: Position) -> Any:
        """See `Source`."""
        [draws] = self.counters
        if position.state is not None and position.form == form_of(self.batches):
            draws.go_on(position.batches)
            live = iter(dataset)
            restore_iterator(live, position.state)
            self._num_shuffles = num_shuffles(position.state)
            self._tell_of_no_seed()
            return live
        *before, current = position.batches or (0,)
        if not draws.go_on(position.batches):
            self._draw_again(before)
        live = self.made(dataset)
        Replaying(current, self.speaks).read(live, current)
        return live

    def pass_over(self, batches: Sequence[int]) -> None:
        """See `Source`."""
        [draws] = self.counters
        if not draws.pass_over(batches):
            self._draw_again(batches)

    def _draw_again(self, batches: Sequence[int]) -> None:
        """Leaves shuffles as they are after iterators from which so many batches each have been read.

        They are read only where it depends on that which seeds have been drawn, each up to one batch behind those that
        steps have taken: TensorFlow reads ahead, and finds the end of the data there.
        """
        if not draws_as_read(self.batches):
            draw_as_iterators(self.batches, batches)
            return
        progress, after = Replaying(sum(batches), self.speaks), capture_generators()
        for num_batches in batches:
            iterator = iter(self.batches)
            progress.read(iterator, num_batches + 1 if num_batches else 0)
        restore_generators(after)

    def _divided(self) -> AnyDivision:
        self.dataset, *self.counters = with_own_draws(self.dataset)
        return divided(self.dataset)

    @functools.cached_property
    def _seems_small(self) -> bool:
        """Whether it is worth trying. Asks TensorFlow for sizes, hence once."""
        return estimated_state_bytes(self.batches) <= MAX_STATE_BYTES

    def _state_of(self, iterator: Any) -> Any:
        try:
            return iterator_state(iterator, ignores_state_outside=self.ignores_state_outside)
        except NoIteratorStateError:
            # The operation that it names need not draw: TensorFlow names the first call of a function, too.
            self.may_have_state = False
            if self.speaks and (drawn := random_operations(self.batches)):
                _LOGGER.warning(
                    "the input pipeline draws random numbers whose state a snapshot cannot store (%s). After a "
                    "restart each row is still trained on exactly once. But random augmentation in a parallel "
                    "map, or by Keras layers in any map, gets other random numbers. To repeat them exactly, use "
                    "tf.random.stateless_* with a seed from the data (e.g. enumerate()).",
                    ", ".join(drawn),
                )
            return None

    def _tell_of_no_seed(self) -> None:
        if not self._has_told and self.speaks and not tensorflow_is_seeded():
            _LOGGER.warning(
                "TensorFlow has no seed: a shuffle without a seed cannot be repeated after a restart, so "
                "rows may be read twice or not at all. Put keras.utils.set_random_seed(1) at the top of the "
                "script, or start the script with `paceline run`, which sets a seed."
            )
        self._has_told = True


class Arrays(TfData):
    """Arrays, of which Keras has made a dataset."""

    of_arrays = True
    ignores_state_outside = True


class ByIndex(Source):
    """Rows that are read by their numbers, or batches of a data worker: the position is an epoch and a batch.

    Numbers of epochs are with the random generators in a snapshot (`data/indexed/readings.py`).
    """

    counts_all = False

    def __init__(self, opened: Opened, division: IndexDivision | None = None) -> None:
        super().__init__(opened)
        self.division = division
        self.counters = [reading_of(opened.dataset)]

    def rows(self, rank: int, size: int, log: FingerprintLog | None = None) -> Any:
        """See `Source`."""
        own = super().rows(rank, size, log)
        self.counters = [reading_of(own)]
        return own

    def alone(self) -> Any:
        """See `Source`."""
        return self.dataset if self.division is None else self.rows(0, 1)

    def go_on(self, dataset: Any, position: Position) -> Any:
        """See `Source`: nothing is read again."""
        [reading] = self.counters
        reading.begin_at((position.batches or (0,))[-1])
        return iter(dataset)

    def _divided(self) -> AnyDivision:
        return self.division or divided(self.dataset)


class OwnBatches(Source):
    """Batches that the script, or a rule of TensorFlow's, has divided: each rank reads its own, in any number."""

    def share(self, strategy: SynchronousStrategy, model: Any) -> None:
        """See `Source`: who runs out goes on with batches of no rows."""
        group, is_divided = strategy.group, is_local(self.given)
        work = work_of(division_in(self.given)) if is_divided else how_divided(self.dataset)
        self.is_local = True
        self._describe(work, strategy, model)
        if is_divided:  # Keras may have mapped what it was given (class weights); the rows are this rank's all the same
            own, number = self.dataset, self.adapter.num_batches
        else:
            own, number = local_batches(self.dataset, group.rank, group.size), None
        self.batches = mark_as_local(self._as_long_as_the_longest(own, number, group) if group.size > 1 else own)

    def _as_long_as_the_longest(self, dataset: Any, own: int | None, group: Any) -> Any:
        """This rank's `own` batches, and empty ones for as long as another rank has some. Collective."""
        counts: Any = np.concatenate(group.all_gather(np.array([-1 if own is None else own], np.int64)))
        longest = self.num_batches = None if (counts < 0).any() else int(counts.max())
        self.agreed_num_batches = longest
        shapes = shapes_of_another(dataset, counts, group.rank, lambda own: np.concatenate(group.all_gather(own)))
        padded = followed_by_empty_batches(dataset, shapes)
        return padded if longest is None else padded.take(longest)


class OwnTfData(OwnBatches, TfData):
    """Of a dataset."""


class OwnByIndex(OwnBatches, ByIndex):
    """Of data that are read by their numbers."""
