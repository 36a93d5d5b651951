"""Steps through an epoch of a source (`sources/source.py`), and checks in each that all ranks read the same data."""

import sys
import warnings
from types import SimpleNamespace
from typing import Any

from paceline.data.freed_iterators import Iterable, freed_in_threads
from paceline.data.indexed.grain_batches import by_index
from paceline.fit.engine import engine_for
from paceline.fit.predictions import counted_batches
from paceline.fit.run import Run, observer
from paceline.fit.sources.kinds import before_look
from paceline.fit.sources.source import Opened, Source
from paceline.fit.whole_batches import batch_of, expect
from paceline.strategy.replica_context import CutShort

_NO_DATA = (
    "the data ended before the first step: there was no batch, so nothing was computed. Usual causes: a filter that "
    "removes all rows, an empty list of files, or fewer rows than one batch with drop_remainder=True [no-data]"
)

_AS_IT_IS = SimpleNamespace(experimental_distribute_dataset=lambda dataset: dataset)
"""Stands in for the strategy in Keras's constructor: its dataset is distributed once it is known what it is of."""
_UNFOLLOWED = SimpleNamespace(make=iter, steps=lambda items: items)
"""Stands in for a cursor (`snapshots/data_cursor.py`) where nobody follows an epoch iterator."""


def epoch_iterator_class(keras_class: Any) -> Any:
    """Keras's `TFEpochIterator` that gives each rank its rows, and compares fingerprints after an epoch's first step.

    After the first step rather than before it: the first batch is known by then, and asking for it earlier would wait
    for the input pipeline.

    Args:
        keras_class: Keras's.
    """

    class PacelineEpochIterator(keras_class):  # type: ignore[misc]  # a Keras class, untyped
        """Steps through one epoch of this rank's batches."""

        def __init__(self, distribute_strategy: Any = None, x: Any = None, *args: Any, **kwargs: Any) -> None:
            x = by_index(x)
            before = before_look(x)
            super().__init__(_AS_IT_IS, x, *args, **kwargs)
            self._distribute_strategy = distribute_strategy
            self.predicting_model = _predicting_model()
            dataset: Any = self._distributed_dataset  # type: ignore[has-type]
            opened = Opened(x, before, self.data_adapter, dataset, self.steps_per_epoch)
            self.source: Source = engine_for(distribute_strategy).source(opened, self.predicting_model)
            """What it reads."""
            self._distributed_dataset = self.source.batches
            self._num_batches: int | None = self.source.num_batches
            self._whole_batch = batch_of(self.source.description)
            self.cursor = _cursor_of(self)
            """Who follows it through its data."""

        def _get_iterator(self) -> Any:
            # Keras asks whenever it makes a new iterator over the dataset.
            self.source.begin()
            batches = freed_in_threads(super()._get_iterator())
            return _ended_together(self, Iterable(lambda: self.cursor.make(batches)))

        def _enumerate_iterator(self) -> Any:
            for item in self.cursor.steps(super()._enumerate_iterator()):
                self.source.ask_for(self.source.num_asked + int(self.steps_per_execution))
                expect(self._whole_batch)
                yield item

        def _interrupted_warning(self) -> None:
            self.source.raise_fault()
            # Keras says so whenever data of unknown length end: that is no interruption, unless more was asked for.
            if not _told_of_no_data(self) and (self.steps_per_epoch or self.source.was_used_up):
                super()._interrupted_warning()

        def reset(self) -> None:
            super().reset()
            self._forget_guess()

        def _forget_guess(self) -> None:
            # Keras guesses that an epoch has as many batches as the one before it. Ranks that read their own rows may
            # be longer busy in the next one, and its last rows would be left out.
            if self.source.is_local and not self.steps_per_epoch:
                self._num_batches = self.source.agreed_num_batches

        def __iter__(self) -> Any:
            self._forget_guess()
            self.source.break_off()
            return super().__iter__()

        def __next__(self) -> Any:
            self.source.compare(self._distribute_strategy)
            return super().__next__()

    return PacelineEpochIterator


def _told_of_no_data(iterator: Any) -> bool:
    if iterator.source.num_asked > iterator.steps_per_execution:  # those of the step that has found none
        return False
    # What Keras is handling. Where it knows the number of batches, it asks for no other one, and warns all the same.
    ended = sys.exc_info()[1]
    if not isinstance(ended, StopIteration) or isinstance(ended, CutShort):
        return False
    if iterator.predicting_model is not None:
        raise ValueError(_NO_DATA)  # Keras would fail without its first batch
    warnings.warn(_NO_DATA, stacklevel=3)
    return True


def _ended_together(iterator: Any, batches: Any) -> Any:
    # The steps of `fit` and `evaluate` count rows themselves; `predict` only gathers.
    source = iterator.source
    if iterator.predicting_model is None or not source.is_local or source.agreed_num_batches is not None:
        return batches
    world = iterator._distribute_strategy.world
    return batches if world.data.size == 1 else Iterable(lambda: counted_batches(batches, world))


def _cursor_of(iterator: Any) -> Any:
    by = observer()
    return (None if by is None else by.follows(iterator)) or _UNFOLLOWED


def _predicting_model() -> Any:
    """The model if the iterator that is being made is its `predict`'s, else None."""
    run = Run.current()
    if run is None or run.has_iterator:
        return None
    run.has_iterator = True
    return run.model if run.method == "predict" else None
