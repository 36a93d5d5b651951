"""Distributes a dataset over the ranks, and checks in each epoch that all ranks read the same data."""

import functools
import sys
import warnings
from collections.abc import Callable
from types import GeneratorType
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.data.auto_shard import how_divided, is_sharded_by_hand
from paceline.data.batch_rows import DataDescription, describe_data
from paceline.data.fingerprint import FingerprintLog, compare, draws_by_chance
from paceline.data.foreign_memory import read_at_once
from paceline.data.freed_iterators import freed_in_threads
from paceline.data.grain_batches import by_index
from paceline.data.index_batches import IndexDivision
from paceline.data.index_source import reading_of
from paceline.data.local_batches import (
    AnyDivision,
    divided,
    is_local,
    local_batches,
    mark_as_local,
    work_noted,
    work_of,
)
from paceline.data.repetitions import ScriptsDraws, with_own_draws
from paceline.data.shared_generators import division_of_generator
from paceline.data.stages import Whole
from paceline.data.streams import one_ahead, read_as_asked_for
from paceline.data.uneven import followed_by_empty_batches, shapes_of_another
from paceline.fit.compat import ArrayDataAdapter, GeneratorDataAdapter, PyDatasetAdapter, first_batches
from paceline.fit.dealing.worker_data import worker_data_of
from paceline.fit.enqueuers import refuse_missing_items
from paceline.fit.epoch_streams import GivenStream, NoStream
from paceline.fit.item_makers import ItemMakers, item_makers, outlives_epoch, untouched
from paceline.fit.predictions import CountedBatches, predicting_model
from paceline.fit.snapshots.data_cursor import DataCursor, Unfollowed
from paceline.fit.unbatched import check_batched
from paceline.fit.whole_batches import batch_of, expect
from paceline.strategy.base import SynchronousStrategy
from paceline.strategy.compat import ParameterServerStrategyV2
from paceline.strategy.replica_context import CutShort

_NO_DATA = (
    "the data ended before the first step: there was no batch, so nothing was computed. Usual causes: a filter that "
    "removes all rows, an empty list of files, or fewer rows than one batch with drop_remainder=True [no-data]"
)


def epoch_iterator_class(keras_class: Any, follow: Callable[[Any], DataCursor | Unfollowed]) -> Any:
    """Keras's `TFEpochIterator` that gives each rank its rows, and compares fingerprints after an epoch's first step.

    After the first step rather than before it: the first batch is known by then, and asking for it earlier would wait
    for the input pipeline.

    Args:
        keras_class: Keras's.
        follow: Asked once for each new one: who follows it through its data (`snapshots.py`).
    """

    class PacelineEpochIterator(keras_class):  # type: ignore[misc]  # a Keras class, untyped
        """Steps through one epoch of this rank's batches."""

        def __init__(self, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
            args, kwargs = _with_data(by_index, *args, **kwargs)
            self._given = _data_of(*args, **kwargs)
            self._before_look = untouched(self._given)
            self.stream: Any = GivenStream(self._given) if isinstance(self._given, GeneratorType) else NoStream()
            """The generator that it reads, if the data are one."""
            self.same_data = _SameData(None)
            """Where ranks could read other data than each other, it has a log."""
            self.num_taken = 0
            """Batches of the iterator that is being read, up to the end of the step that has begun."""
            self._agreed_num_batches: int | None = None
            self._predicting_model = predicting_model()
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
            self.stream = self.stream.or_that_of(self.reading, distributor.makers)
            self.data_cursor = follow(self)
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
                self._num_batches = self._agreed_num_batches

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
    if iterator._predicting_model is not None:
        raise ValueError(_NO_DATA)  # Keras would fail without its first batch
    warnings.warn(_NO_DATA, stacklevel=3)
    return True


class _SameData:
    """Compares what a log, if there is one, has noted of the batches of a step, once that has been taken."""

    def __init__(self, log: FingerprintLog | None) -> None:
        self._log = log
        self._indices: list[int] = []

    def begin_iterator(self) -> None:
        """A new iterator over the data is about to be made."""
        if self._log is not None:
            self._log.begin_iterator()

    def take(self, first: int, end: int) -> None:
        """A step is about to take the batches first, …, end - 1 of the newest iterator."""
        if self._log is not None:
            self._indices += filter(self._log.is_compared, range(first, end))

    def forget(self) -> None:
        """The last step was broken off."""
        self._indices = []

    def compare(self, strategy: Any) -> None:
        """Collective, if any of the batches of the last step is one to compare."""
        indices, self._indices = self._indices, []
        for index in indices:
            assert self._log is not None
            compare(self._log, index, strategy.fit_group)


def _with_data(change: Callable[[Any], Any], x: Any = None, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], Any]:
    """The arguments of Keras's constructor, with other data."""
    return (change(x), *args), kwargs


def _data_of(x: Any = None, *_: Any, **__: Any) -> Any:
    """What `fit` was given for data."""
    return x


def _ended_together(iterator: Any, batches: Any) -> Any:
    # The steps of `fit` and `evaluate` count rows themselves; `predict` only gathers.
    is_own = iterator.description is not None and iterator.description.is_local
    if not (iterator._predicting_model is not None and is_own and iterator._agreed_num_batches is None):
        return batches
    world = iterator._distribute_strategy.world
    return batches if world.data.size == 1 else CountedBatches(batches, world)


class _Distributor:
    """Stands in for the strategy while Keras's constructor asks it to distribute the dataset: it knows the epoch."""

    def __init__(self, strategy: Any, iterator: Any) -> None:
        self._strategy = strategy
        self._iterator = iterator
        self.makers: ItemMakers | None = None
        """Who makes the items of a `PyDataset`, if not every rank all."""

    def also_if_distributed(self, dataset: Any) -> Any:
        """`dataset`, seen to: Keras does not ask about one that is distributed already, or without a strategy."""
        if self._iterator.description is None and isinstance(self._strategy, SynchronousStrategy):
            return self.experimental_distribute_dataset(dataset)
        return dataset

    def experimental_distribute_dataset(self, dataset: Any) -> Any:
        log, is_stream = None, isinstance(self._iterator.data_adapter, GeneratorDataAdapter)
        if isinstance(self._iterator.data_adapter, GeneratorDataAdapter | PyDatasetAdapter):
            refuse_missing_items(self._iterator.data_adapter)
            dataset = read_at_once(dataset)
        if is_stream:
            dataset = read_as_asked_for(dataset)
        if isinstance(self._strategy, ParameterServerStrategyV2):
            # The chief reads all of it, and deals its batches.
            return one_ahead(dataset) if is_stream else worker_data_of(dataset)
        if not isinstance(self._strategy, SynchronousStrategy):
            if isinstance(by_index := divided(dataset), IndexDivision):  # to know its position
                dataset = local_batches(dataset, 0, 1, division=by_index)
            dataset = self._with_own_draws(dataset)
            return self._strategy.experimental_distribute_dataset(one_ahead(dataset) if is_stream else dataset)
        group = self._strategy.group
        is_own = is_local(self._iterator._given)
        is_sharded_by_script = group.size > 1 and not is_own and is_sharded_by_hand(dataset)
        dataset = dataset if is_own or is_sharded_by_script else self._with_own_draws(dataset)
        division: AnyDivision | None = None if is_own or is_sharded_by_script else self._divided(dataset)
        source = division.source if isinstance(division, IndexDivision) else None
        if group.size == 1 and source is None and self.makers is None:
            division = None
        self._iterator.description = describe_data(
            dataset,
            batch_size=self._batch_size_of(dataset) if source is None else source.batch_size,
            num_batches=self._iterator._num_batches,
            is_local=is_own or is_sharded_by_script,
            steps_per_epoch=self._iterator.steps_per_epoch,
            of_arrays=isinstance(self._iterator.data_adapter, ArrayDataAdapter),
            work=how_divided(dataset) if is_sharded_by_script else self._work_of(division),
            facts=() if source is None else source.facts,
        )
        if (model := self._iterator._predicting_model) is not None:
            check_batched(model, self._iterator.description, self._strategy, "predict_step")
        if is_own:
            # Keras may have mapped what it was given (class weights); the rows are this rank's all the same.
            dataset = mark_as_local(self._as_long_as_the_longest(dataset, self._iterator._num_batches))
        elif is_sharded_by_script:
            own_rows = local_batches(dataset, group.rank, group.size)
            dataset = mark_as_local(self._as_long_as_the_longest(own_rows, None))
        elif self._strategy.fit_group.size > 1:
            num_repeated = len(first_batches(self._iterator.data_adapter)) if is_stream else 0
            by_chance = functools.partial(self._draws_by_chance, dataset)
            log = FingerprintLog(by_chance, self._iterator.steps_per_epoch, num_repeated)
            self._iterator.same_data = _SameData(log)
        ahead = not is_stream and not outlives_epoch(self._iterator.data_adapter, self._iterator.steps_per_epoch)
        local = local_batches(dataset, group.rank, group.size, log=log, reads_ahead=ahead, division=division)
        return one_ahead(local) if is_stream else local

    def _work_of(self, division: AnyDivision | None) -> str:
        if division is not None:
            return work_of(division)
        return work_noted(self._iterator._given) if is_local(self._iterator._given) else ""

    def _batch_size_of(self, dataset: Any) -> int | None:
        first, *_ = tf.nest.flatten(dataset.element_spec)
        is_scalar = isinstance(first, tf.TensorSpec) and first.shape.rank == 0  # Keras fails there
        size: int | None = None if is_scalar else self._iterator.data_adapter.batch_size
        return size

    def _with_own_draws(self, dataset: Any) -> Any:
        dataset, self._iterator.draws = with_own_draws(dataset)
        return dataset

    def _divided(self, dataset: Any) -> AnyDivision:
        iterator = self._iterator
        if isinstance(iterator.data_adapter, PyDatasetAdapter) and self._strategy.fit_group.size > 1:
            spec, before = dataset.element_spec, iterator._before_look
            self.makers = item_makers(iterator.data_adapter, spec, iterator.steps_per_epoch, before, self._strategy)
        if self.makers is not None:
            return self.makers.division
        if isinstance(iterator.data_adapter, GeneratorDataAdapter):
            return division_of_generator(iterator._given)
        return Whole() if isinstance(iterator.data_adapter, PyDatasetAdapter) else divided(dataset)

    def _draws_by_chance(self, dataset: Any) -> bool:
        adapter = self._iterator.data_adapter
        if isinstance(adapter, PyDatasetAdapter):
            return bool(adapter.py_dataset.workers > 1)
        return draws_by_chance(dataset)

    def _as_long_as_the_longest(self, dataset: Any, own: int | None) -> Any:
        """This rank's `own` batches, and empty ones for as long as another rank has some. Collective."""
        group = self._strategy.group
        if group.size == 1:
            return dataset
        counts = np.concatenate(group.all_gather(np.array([-1 if own is None else own], np.int64)))
        longest = None if (counts < 0).any() else int(counts.max())
        self._iterator._num_batches = self._iterator._agreed_num_batches = longest
        shapes = shapes_of_another(dataset, counts, group.rank, lambda own: np.concatenate(group.all_gather(own)))
        padded = followed_by_empty_batches(dataset, shapes)
        return padded if longest is None else padded.take(longest)
