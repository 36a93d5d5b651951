"""What one of several replicas reads of a dataset: its rows of each batch, the same batches as all others."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.data.batch_rows import describe_data
from paceline.data.fingerprint import FingerprintLog, compare, draws_by_chance
from paceline.data.items.shared_generators import division_of_generator
from paceline.data.items.streams import one_ahead
from paceline.data.order.repetitions import with_own_draws
from paceline.data.own_rows.auto_shard import how_divided, is_sharded_by_hand
from paceline.data.own_rows.index_batches import IndexDivision
from paceline.data.own_rows.local_batches import (
    AnyDivision,
    divided,
    is_local,
    local_batches,
    mark_as_local,
    work_noted,
    work_of,
)
from paceline.data.own_rows.stages import Whole
from paceline.data.own_rows.uneven import followed_by_empty_batches, shapes_of_another
from paceline.fit.compat import ArrayDataAdapter, GeneratorDataAdapter, PyDatasetAdapter, first_batches
from paceline.fit.item_makers import item_makers, outlives_epoch
from paceline.fit.unbatched import check_batched
from paceline.strategy.base import SynchronousStrategy


class SameData:
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


class ReplicaData:
    """Makes the dataset of one rank.

    Args:
        epoch: The epoch iterator that will read it, which learns what the data are.
        strategy: Whose replicas share the rows.
    """

    def __init__(self, epoch: Any, strategy: SynchronousStrategy) -> None:
        self._epoch = epoch
        self._strategy = strategy

    def of(self, dataset: Any) -> Any:
        """This rank's rows of a dataset that Keras has made. Collective where ranks have data of their own."""
        log, is_stream = None, isinstance(self._epoch.data_adapter, GeneratorDataAdapter)
        group = self._strategy.group
        is_own = is_local(self._epoch.given)
        is_sharded_by_script = group.size > 1 and not is_own and is_sharded_by_hand(dataset)
        dataset = dataset if is_own or is_sharded_by_script else self._with_own_draws(dataset)
        division: AnyDivision | None = None if is_own or is_sharded_by_script else self._divided(dataset)
        source = division.source if isinstance(division, IndexDivision) else None
        if group.size == 1 and source is None and self._epoch.makers is None:
            division = None
        self._epoch.description = describe_data(
            dataset,
            batch_size=self._batch_size_of(dataset) if source is None else source.batch_size,
            num_batches=self._epoch._num_batches,
            is_local=is_own or is_sharded_by_script,
            steps_per_epoch=self._epoch.steps_per_epoch,
            of_arrays=isinstance(self._epoch.data_adapter, ArrayDataAdapter),
            work=how_divided(dataset) if is_sharded_by_script else self._work_of(division),
            facts=() if source is None else source.facts,
        )
        if (model := self._epoch.predicting_model) is not None:
            check_batched(model, self._epoch.description, self._strategy, "predict_step")
        if is_own:
            # Keras may have mapped what it was given (class weights); the rows are this rank's all the same.
            dataset = mark_as_local(self._as_long_as_the_longest(dataset, self._epoch._num_batches))
        elif is_sharded_by_script:
            own_rows = local_batches(dataset, group.rank, group.size)
            dataset = mark_as_local(self._as_long_as_the_longest(own_rows, None))
        elif self._strategy.fit_group.size > 1:
            num_repeated = len(first_batches(self._epoch.data_adapter)) if is_stream else 0
            by_chance = functools.partial(self._draws_by_chance, dataset)
            log = FingerprintLog(by_chance, self._epoch.steps_per_epoch, num_repeated)
            self._epoch.same_data = SameData(log)
        ahead = not is_stream and not outlives_epoch(self._epoch.data_adapter, self._epoch.steps_per_epoch)
        local = local_batches(dataset, group.rank, group.size, log=log, reads_ahead=ahead, division=division)
        return one_ahead(local) if is_stream else local

    def _work_of(self, division: AnyDivision | None) -> str:
        if division is not None:
            return work_of(division)
        return work_noted(self._epoch.given) if is_local(self._epoch.given) else ""

    def _batch_size_of(self, dataset: Any) -> int | None:
        first, *_ = tf.nest.flatten(dataset.element_spec)
        is_scalar = isinstance(first, tf.TensorSpec) and first.shape.rank == 0  # Keras fails there
        size: int | None = None if is_scalar else self._epoch.data_adapter.batch_size
        return size

    def _with_own_draws(self, dataset: Any) -> Any:
        dataset, self._epoch.draws = with_own_draws(dataset)
        return dataset

    def _divided(self, dataset: Any) -> AnyDivision:
        epoch = self._epoch
        if isinstance(epoch.data_adapter, PyDatasetAdapter) and self._strategy.fit_group.size > 1:
            spec, before = dataset.element_spec, epoch.before_look
            self._epoch.makers = item_makers(epoch.data_adapter, spec, epoch.steps_per_epoch, before, self._strategy)
        if self._epoch.makers is not None:
            made: AnyDivision = epoch.makers.division
            return made
        if isinstance(epoch.data_adapter, GeneratorDataAdapter):
            return division_of_generator(epoch.given)
        return Whole() if isinstance(epoch.data_adapter, PyDatasetAdapter) else divided(dataset)

    def _draws_by_chance(self, dataset: Any) -> bool:
        adapter = self._epoch.data_adapter
        if isinstance(adapter, PyDatasetAdapter):
            return bool(adapter.py_dataset.workers > 1)
        return draws_by_chance(dataset)

    def _as_long_as_the_longest(self, dataset: Any, own: int | None) -> Any:
        """This rank's `own` batches, and empty ones for as long as another rank has some. Collective."""
        group = self._strategy.group
        if group.size == 1:
            return dataset
        counts: Any = np.concatenate(group.all_gather(np.array([-1 if own is None else own], np.int64)))
        longest = None if (counts < 0).any() else int(counts.max())
        self._epoch._num_batches = self._epoch.agreed_num_batches = longest
        shapes = shapes_of_another(dataset, counts, group.rank, lambda own: np.concatenate(group.all_gather(own)))
        padded = followed_by_empty_batches(dataset, shapes)
        return padded if longest is None else padded.take(longest)
