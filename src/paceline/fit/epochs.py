"""Handing a dataset to the strategy, and checking once an epoch that all ranks read the same one."""

from typing import Any

from paceline.data.fingerprint import FingerprintLog, compare
from paceline.data.local_batches import is_local, local_batches, mark_as_local
from paceline.strategy.base import SynchronousStrategy

_COMPARED_AFTER_STEPS = 1


def epoch_iterator_class(keras_class: Any) -> Any:
    """Keras's `TFEpochIterator` that gives each rank its rows, and compares fingerprints after an epoch's first step.

    After the first step rather than before it: the first batch is known by then, and asking for it earlier would wait
    for the input pipeline.
    """

    class PacelineEpochIterator(keras_class):  # type: ignore[misc]  # a Keras class, untyped
        """Steps through one epoch of this rank's batches."""

        def __init__(self, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
            self._given = kwargs.get("x", args[0] if args else None)
            self._epoch_of_iterator = 0
            self._is_fresh = True
            self._steps_given = 0
            super().__init__(_Distributor(distribute_strategy, self), *args, **kwargs)
            self._distribute_strategy = distribute_strategy

        def _get_iterator(self) -> Any:
            # Keras asks whenever it makes a new iterator over the dataset.
            self._is_fresh = True
            log = getattr(self, "_fingerprints", None)
            if log is not None:
                log.begin_iterator()
            return super()._get_iterator()

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
            strategy = self._distribute_strategy
            log = getattr(self, "_fingerprints", None)
            self._epoch_of_iterator = 0 if self._is_fresh else self._epoch_of_iterator + 1
            self._is_fresh = False
            if log is not None and isinstance(strategy, SynchronousStrategy):
                compare(log, self._epoch_of_iterator, strategy.world.communicator)

    return PacelineEpochIterator


class _Distributor:
    """Stands in for the strategy while Keras's constructor asks it to distribute the dataset: it knows the epoch."""

    def __init__(self, strategy: Any, iterator: Any) -> None:
        self._strategy = strategy
        self._iterator = iterator

    def experimental_distribute_dataset(self, dataset: Any) -> Any:
        if not isinstance(self._strategy, SynchronousStrategy):
            return self._strategy.experimental_distribute_dataset(dataset)
        world = self._strategy.world
        if is_local(self._iterator._given):
            # Keras may have mapped what it was given (class weights); the rows are this rank's all the same.
            dataset = mark_as_local(dataset)
        elif world.size > 1:
            self._iterator._fingerprints = FingerprintLog()
        return local_batches(
            dataset,
            world.rank,
            world.size,
            log=getattr(self._iterator, "_fingerprints", None),
            steps_per_epoch=self._iterator.steps_per_epoch,
        )
