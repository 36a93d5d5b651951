"""Handing a dataset to the strategy, and checking once an epoch that all ranks read the same one."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from paceline.data.chance import draws_by_chance
from paceline.data.description import DataDescription, describe_data
from paceline.data.fingerprint import FingerprintLog, compare
from paceline.data.local_batches import is_local, is_sharded_by_hand, local_batches, mark_as_local
from paceline.data.uneven import followed_by_empty_batches, shapes_of_another
from paceline.fit.compat import PyDatasetAdapter
from paceline.fit.predictions import CountedBatches, is_for_predict
from paceline.fit.snapshots.data_cursor import DataCursor, Unfollowed
from paceline.fit.snapshots.owed_batches import draw_owed
from paceline.strategy.base import SynchronousStrategy

_COMPARED_AFTER_STEPS = 1


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
            self._given = _data_of(*args, **kwargs)
            draw_owed(self._given)  # before Keras looks at the first ones
            self._epoch_of_iterator = 0
            self._is_fresh = True
            self._steps_given = 0
            self._agreed_num_batches: int | None = None
            self._is_for_predict = is_for_predict()
            self.description: DataDescription | None = None
            """What is known of the data; None under another strategy than Paceline's."""
            distributor = _Distributor(distribute_strategy, self)
            super().__init__(distributor, *args, **kwargs)
            self._distribute_strategy = distribute_strategy
            self._distributed_dataset: Any = distributor.also_if_distributed(self._distributed_dataset)
            self.data_cursor = follow(self)
            """Who follows it through its data."""

        def _get_iterator(self) -> Any:
            # Keras asks whenever it makes a new iterator over the dataset.
            self._is_fresh = True
            _begin_iterator(getattr(self, "_fingerprints", None))
            return _ended_together(self, self.data_cursor.iterable(super()._get_iterator()))

        def _enumerate_iterator(self) -> Any:
            return self.data_cursor.steps(super()._enumerate_iterator())

        def reset(self) -> None:
            super().reset()
            if self.description is not None and self.description.is_local:
                self._num_batches = self._agreed_num_batches

        def __iter__(self) -> Any:
            self._steps_given = 0
            return super().__iter__()

        def __next__(self) -> Any:
            if self._steps_given == _COMPARED_AFTER_STEPS:
                self._compare()
            try:
                item = super().__next__()
            except StopIteration:
                if self._steps_given == _COMPARED_AFTER_STEPS:
                    self._steps_given += 1
                raise
            self._steps_given += 1
            return item

        def _compare(self) -> None:
            self._epoch_of_iterator = 0 if self._is_fresh else self._epoch_of_iterator + 1
            self._is_fresh = False
            _compare_data(getattr(self, "_fingerprints", None), self._epoch_of_iterator, self._distribute_strategy)

    return PacelineEpochIterator


def _data_of(x: Any = None, *_: Any, **__: Any) -> Any:
    """What `fit` was given for data."""
    return x


def _ended_together(iterator: Any, batches: Any) -> Any:
    # The steps of `fit` and `evaluate` count rows themselves; `predict` only gathers.
    is_own = iterator.description is not None and iterator.description.is_local
    if not (iterator._is_for_predict and is_own and iterator._agreed_num_batches is None):
        return batches
    world = iterator._distribute_strategy.world
    return batches if world.size == 1 else CountedBatches(batches, world)


def _begin_iterator(log: FingerprintLog | None) -> None:
    if log is not None:
        log.begin_iterator()


def _compare_data(log: FingerprintLog | None, epoch_of_iterator: int, strategy: Any) -> None:
    if log is not None and isinstance(strategy, SynchronousStrategy):
        compare(log, epoch_of_iterator, strategy.world.communicator)


class _Distributor:
    """Stands in for the strategy while Keras's constructor asks it to distribute the dataset: it knows the epoch."""

    def __init__(self, strategy: Any, iterator: Any) -> None:
        self._strategy = strategy
        self._iterator = iterator

    def also_if_distributed(self, dataset: Any) -> Any:
        """`dataset`, seen to: Keras does not ask about one that is distributed already."""
        if self._iterator.description is None and isinstance(self._strategy, SynchronousStrategy):
            return self.experimental_distribute_dataset(dataset)
        return dataset

    def experimental_distribute_dataset(self, dataset: Any) -> Any:
        if not isinstance(self._strategy, SynchronousStrategy):
            return self._strategy.experimental_distribute_dataset(dataset)
        world = self._strategy.world
        is_own = is_local(self._iterator._given)
        is_sharded_by_script = world.size > 1 and not is_own and is_sharded_by_hand(dataset)
        self._iterator.description = describe_data(
            dataset,
            batch_size=self._iterator.data_adapter.batch_size,
            is_local=is_own or is_sharded_by_script,
            steps_per_epoch=self._iterator.steps_per_epoch,
        )
        if is_own:
            # Keras may have mapped what it was given (class weights); the rows are this rank's all the same.
            dataset = mark_as_local(self._as_long_as_the_longest(dataset, self._iterator._num_batches))
        elif is_sharded_by_script:
            own_rows = local_batches(dataset, world.rank, world.size)
            dataset = mark_as_local(self._as_long_as_the_longest(own_rows, None))
        elif world.size > 1:
            self._iterator._fingerprints = FingerprintLog(functools.partial(self._draws_by_chance, dataset))
        return local_batches(
            dataset,
            world.rank,
            world.size,
            log=getattr(self._iterator, "_fingerprints", None),
            steps_per_epoch=self._iterator.steps_per_epoch,
        )

    def _draws_by_chance(self, dataset: Any) -> bool:
        adapter = self._iterator.data_adapter
        if isinstance(adapter, PyDatasetAdapter):
            return bool(adapter.py_dataset.workers > 1)
        return draws_by_chance(dataset)

    def _as_long_as_the_longest(self, dataset: Any, own: int | None) -> Any:
        """This rank's `own` batches, and empty ones for as long as another rank has some. Collective."""
        communicator = self._strategy.world.communicator
        if communicator.size == 1:
            return dataset
        counts = np.concatenate(communicator.all_gather(np.array([-1 if own is None else own], np.int64)))
        longest = None if (counts < 0).any() else int(counts.max())
        self._iterator._num_batches = self._iterator._agreed_num_batches = longest
        shapes = shapes_of_another(
            dataset, counts, communicator.rank, lambda own: np.concatenate(communicator.all_gather(own))
        )
        padded = followed_by_empty_batches(dataset, shapes)
        return padded if longest is None else padded.take(longest)
