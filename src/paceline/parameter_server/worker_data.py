"""Data that each worker reads by itself: a function that makes a dataset, in place of data."""

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.fit.sources.datasets import TfData
from paceline.fit.sources.kinds import dataset_made
from paceline.fit.sources.source import Opened, Position
from paceline.parameter_server.calls_of_python import check_no_python
from paceline.strategy.coordination import iterators_on_workers, num_workers_of

_LOGGER = logging.getLogger("paceline")

_WORKER_DATA = "_paceline_worker_data"


def dataset_placeholder(function: Callable[..., Any], model: Any, strategy: Any) -> Any:
    """What Keras is given in place of a function: a dataset without end, which `ReadByWorkers` knows.

    Args:
        function: Makes a dataset; takes a `tf.distribute.InputContext` or nothing.
        model: What trains on it.
        strategy: Its `ParameterServerStrategy`.
    """
    placeholder = tf.data.Dataset.from_tensors(0).repeat()
    object.__setattr__(placeholder, _WORKER_DATA, WorkerData(function, model, strategy))
    return placeholder


def is_of_workers(dataset: Any) -> bool:
    """Whether `dataset` is such a placeholder."""
    return hasattr(dataset, _WORKER_DATA)


class ReadByWorkers(TfData):
    """Data that workers read: how far each one was is in no snapshot."""

    may_have_state = False

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.batches = getattr(opened.dataset, _WORKER_DATA)

    def go_on(self, dataset: Any, position: Position) -> Any:
        """See `Source`: each worker's dataset begins anew."""
        del position
        if self.speaks:
            _LOGGER.warning(
                "the workers read by themselves, so a snapshot does not know which rows they had read: each worker's "
                "dataset begins anew. The number of steps is exact."
            )
        return self.made(dataset)


class WorkerData:
    """Stands for the datasets that the workers make; iterating makes them anew.

    Args:
        function: Makes a dataset; takes a `tf.distribute.InputContext` or nothing.
        model: What trains on it.
        strategy: Its `ParameterServerStrategy`.

    Raises:
        ValueError: the function calls Python, or returns no dataset.
    """

    def __init__(self, function: Callable[..., Any], model: Any, strategy: Any) -> None:
        self.element_spec: Any = None
        """The spec of a batch."""
        num_workers = num_workers_of(strategy)

        def dataset_on(index: int) -> Any:
            dataset = dataset_made(function, num_workers, index)
            self.element_spec = dataset.element_spec
            return dataset

        self._strategy = strategy
        self._functions = [
            tf.function(dataset_on, autograph=False).get_concrete_function(index) for index in range(num_workers)
        ]
        for concrete in self._functions:
            check_no_python(concrete.graph, model, "the function in place of data")

    def __iter__(self) -> "WorkerIterator":
        return WorkerIterator(iterators_on_workers(self._strategy, self._functions), self.element_spec)


class WorkerIterator:
    """What Keras's loop has for an iterator: each worker has its own.

    Args:
        on_workers: `PerWorkerValues` of the iterators.
        element_spec: Of their batches.
    """

    def __init__(self, on_workers: Any, element_spec: Any) -> None:
        self.on_workers = on_workers
        self.element_spec = element_spec
        self.iterator_spec = tf.data.IteratorSpec(element_spec)

    def read_by(self, call: Callable[[Any], Any], cancellation: Any) -> Any:
        """Makes a call on a worker that reads its data.

        Raises:
            ValueError: they have ended.
        """
        try:
            return call(cancellation)
        except tf.errors.OutOfRangeError:
            raise ValueError(
                "the dataset that the function in place of data made on a worker has ended before the epochs have. Let "
                "the function return dataset.repeat() [dataset-function]"
            ) from None

    def __iter__(self) -> "WorkerIterator":
        return self

    def __next__(self) -> Any:
        raise TypeError("only workers read these data")
