"""Distributes a dataset over the ranks, and checks in each epoch that all ranks read the same data."""

import sys
import warnings
from collections.abc import Callable
from types import GeneratorType
from typing import Any

from paceline.data.batch_rows import DataDescription
from paceline.data.foreign_memory import read_at_once
from paceline.data.freed_iterators import freed_in_threads
from paceline.data.indexed.grain_batches import by_index
from paceline.data.indexed.index_source import reading_of
from paceline.data.items.streams import read_as_asked_for
from paceline.data.order.repetitions import ScriptsDraws
from paceline.fit.compat import GeneratorDataAdapter, PyDatasetAdapter
from paceline.fit.engine import engine_for
from paceline.fit.enqueuers import refuse_missing_items
from paceline.fit.epoch_streams import GivenStream, NoStream
from paceline.fit.item_makers import ItemMakers, untouched
from paceline.fit.predictions import CountedBatches
from paceline.fit.replica_data import SameData
from paceline.fit.run import Run, observer
from paceline.fit.snapshots.data_cursor import Unfollowed
from paceline.fit.whole_batches import batch_of, expect
from paceline.strategy.replica_context import CutShort

_NO_DATA = (
    "the data ended before the first step: there was no batch, so nothing was computed. Usual causes: a filter that "
    "removes all rows, an empty list of files, or fewer rows than one batch with drop_remainder=True [no-data]"
)


def epoch_iterator_class(keras_class: Any) -> Any:
    """Keras's `TFEpochIterator` that gives each rank its rows, and compares fingerprints after an epoch's first step.

    After the first step rather than before it: the first batch is known by then, and asking for it earlier would wait
    for the input pipeline.

    Args:
        keras_class: Keras's.
    """

    class PacelineEpochIterator(keras_class):  # type: ignore[misc]  # a Keras class, untyped
        """Steps through one epoch of this rank's batches."""

        def __init__(self, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
            args, kwargs = _with_data(by_index, *args, **kwargs)
            self.given = _data_of(*args, **kwargs)
            """The data, as `fit` was given them."""
            self.before_look = untouched(self.given)
            self.stream: Any = GivenStream(self.given) if isinstance(self.given, GeneratorType) else NoStream()
            """The generator that it reads, if the data are one."""
            self.same_data = SameData(None)
            """Where ranks could read other data than each other, it has a log."""
            self.num_taken = 0
            """Batches of the iterator that is being read, up to the end of the step that has begun."""
            self.agreed_num_batches: int | None = None
            """Of an epoch, where ranks read their own rows."""
            self.predicting_model = _predicting_model()
            self.makers: ItemMakers | None = None
            """Who makes the items of a `PyDataset`, if not every rank all."""
            self.description: DataDescription | None = None
            """What is known of the data; None under another strategy than Paceline's."""
            self.draws = ScriptsDraws()
            """Of the seeds of shuffles that are repeated."""
            distributor = _Distributor(distribute_strategy, self)
            super().__init__(distributor, *args, **kwargs)
            self._distribute_strategy = distribute_strategy
            self._distributed_dataset: Any = distributor.also_if_distributed(self._distributed_dataset)
            self._whole_batch = batch_of(self.description)
            self.stream.stands_in_for(self.data_adapter)
            self.reading = reading_of(self._distributed_dataset)
            """Of a source by index: which epoch is read; None: the data are another kind."""
            self.stream = self.stream.or_that_of(self.reading, self.makers)
            by = observer()
            self.data_cursor = (None if by is None else by.follows(self)) or Unfollowed()
            """Who follows it through its data."""

        def _get_iterator(self) -> Any:
            # Keras asks whenever it makes a new iterator over the dataset.
            self.num_taken = 0
            self.same_data.begin_iterator()
            self.stream.begin()
            self.draws.begin()
            return _ended_together(self, self.data_cursor.iterable(freed_in_threads(super()._get_iterator())))

        def _enumerate_iterator(self) -> Any:
            for item in self.data_cursor.steps(super()._enumerate_iterator()):
                first, self.num_taken = self.num_taken, self.num_taken + int(self.steps_per_execution)
                self.stream.ask_for(self.num_taken)
                self.draws.ask_for(self.num_taken)
                self.same_data.take(first, self.num_taken)
                expect(self._whole_batch)
                yield item

        def _interrupted_warning(self) -> None:
            self.stream.raise_fault()
            # Keras says so whenever data of unknown length end: that is no interruption, unless more was asked for.
            if not _told_of_no_data(self) and (self.steps_per_epoch or self.stream.was_used_up):
                super()._interrupted_warning()

        def reset(self) -> None:
            super().reset()
            self._forget_guess()

        def _forget_guess(self) -> None:
            # Keras guesses that an epoch has as many batches as the one before it. Ranks that read their own rows may
            # be longer busy in the next one, and its last rows would be left out.
            if self.description is not None and self.description.is_local and not self.steps_per_epoch:
                self._num_batches = self.agreed_num_batches

        def __iter__(self) -> Any:
            self._forget_guess()
            self.same_data.forget()
            return super().__iter__()

        def __next__(self) -> Any:
            self.same_data.compare(self._distribute_strategy)
            return super().__next__()

    return PacelineEpochIterator


def _told_of_no_data(iterator: Any) -> bool:
    if iterator.num_taken > iterator.steps_per_execution:  # those of the step that has found none
        return False
    if isinstance(sys.exc_info()[1], CutShort):  # what Keras is handling
        return False
    if iterator.predicting_model is not None:
        raise ValueError(_NO_DATA)  # Keras would fail without its first batch
    warnings.warn(_NO_DATA, stacklevel=3)
    return True


def _with_data(change: Callable[[Any], Any], x: Any = None, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], Any]:
    """The arguments of Keras's constructor, with other data."""
    return (change(x), *args), kwargs


def _data_of(x: Any = None, *_: Any, **__: Any) -> Any:
    """What `fit` was given for data."""
    return x


def _ended_together(iterator: Any, batches: Any) -> Any:
    # The steps of `fit` and `evaluate` count rows themselves; `predict` only gathers.
    is_own = iterator.description is not None and iterator.description.is_local
    if not (iterator.predicting_model is not None and is_own and iterator.agreed_num_batches is None):
        return batches
    world = iterator._distribute_strategy.world
    return batches if world.data.size == 1 else CountedBatches(batches, world)


def _predicting_model() -> Any:
    """The model if the iterator that is being made is its `predict`'s, else None."""
    run = Run.current()
    if run is None or run.has_iterator:
        return None
    run.has_iterator = True
    return run.model if run.method == "predict" else None


class _Distributor:
    """Stands in for the strategy while Keras's constructor asks it to distribute the dataset: it knows the epoch."""

    def __init__(self, strategy: Any, epoch: Any) -> None:
        self._strategy = strategy
        self._epoch = epoch

    def also_if_distributed(self, dataset: Any) -> Any:
        """`dataset`, seen to: Keras does not ask about one that is distributed already, or without a strategy."""
        if self._epoch.description is None and engine_for(self._strategy).reads_alike:
            return self.experimental_distribute_dataset(dataset)
        return dataset

    def experimental_distribute_dataset(self, dataset: Any) -> Any:
        adapter = self._epoch.data_adapter
        if isinstance(adapter, GeneratorDataAdapter | PyDatasetAdapter):
            refuse_missing_items(adapter)
            dataset = read_at_once(dataset)
        if isinstance(adapter, GeneratorDataAdapter):
            dataset = read_as_asked_for(dataset)
        return engine_for(self._strategy).distributed(self._epoch, dataset)
