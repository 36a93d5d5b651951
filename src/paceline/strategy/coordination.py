"""Runs functions on the workers of a `ParameterServerStrategy` through the threads of TensorFlow's coordinator.

The coordinator's public `schedule` tells nobody when a function has ended, copies each result in a message of its own,
and prints what a function raises in its log before it raises it. This module puts its own objects into the
coordinator's queue; which worker is free, and what happens when a process is lost, stays TensorFlow's.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from paceline.strategy import compat
from paceline.strategy.compat import CancellationManager, is_loss_of_process


class Runnable(Protocol):
    """What is put into the queue."""

    def run(self) -> None:
        """Called on a worker's thread, on which `call_on_worker` then reaches this worker."""

    def fail(self, fault: BaseException) -> None:
        """Called if `run` has raised what the coordinator does not handle."""


class Scheduled:
    """A `Runnable` as the coordinator's queue and threads want it: they call these methods (`coordinator.Closure`)."""

    tag: Any = None

    def __init__(self, runnable: Runnable) -> None:
        self._runnable = runnable

    def execute_on(self, worker: Any) -> None:
        """On the thread of `worker`."""
        with compat.dispatch_to(worker):
            self._runnable.run()

    def maybe_call_with_output_remote_value(self, method: Any) -> None:
        """`method` gets this object where TensorFlow would pass a `RemoteValue`."""
        method(self)

    def mark_cancelled(self) -> None:
        """The coordinator has thrown its queue away, after another function's error."""
        self._set_error(tf.errors.CancelledError(None, None, "an earlier step has failed"))

    def get(self) -> None:
        """What a function returns is fetched by `call_on_worker`."""

    def _set_error(self, fault: BaseException) -> None:
        self._runnable.fail(fault)


def queue_of(strategy: Any) -> Any:
    """The queue from which the threads of all workers take; its `put` takes a `Scheduled`."""
    return compat.queue_of(tf.distribute.coordinator.ClusterCoordinator(strategy))


def num_workers_of(strategy: Any) -> int:
    """How many workers the cluster has."""
    return len(compat.workers_of(tf.distribute.coordinator.ClusterCoordinator(strategy)))


def current_worker_index() -> int:
    """Of the worker whose thread this is."""
    return int(compat.current_worker().worker_index)


def iterators_on_workers(strategy: Any, functions: Sequence[Any]) -> Any:
    """Makes an iterator on each worker, and again on one that comes back after it was lost.

    Args:
        strategy: The `ParameterServerStrategy`.
        functions: For each worker a concrete function that returns its dataset.

    Returns:
        `PerWorkerValues` of the iterators.
    """
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    return compat.made_on_workers(coordinator, [lambda make=make: iter(make()) for make in functions])


def call_on_worker(function: Any, arguments: Sequence[Any], cancellation: CancellationManager) -> list[Any]:
    """Calls a function on the worker whose thread this is, and returns its results.

    Args:
        function: A concrete function of tensors that returns a flat list of tensors.
        arguments: Its arguments; `PerWorkerValues` stand for the worker's own.
        cancellation: Can break the call off.

    Returns:
        NumPy arrays.
    """
    worker = compat.current_worker()
    own = [compat.argument_on(worker, argument) for argument in arguments]
    with tf.device(worker.device_name), compat.executor_scope(worker.executor):
        outputs = cancellation.get_cancelable_function(function)(*own)
    with tf.device(f"/job:{compat.own_job()}"):
        return [tf.identity(output).numpy() for output in tf.nest.flatten(outputs)]


__all__ = [
    "CancellationManager",
    "Runnable",
    "Scheduled",
    "call_on_worker",
    "current_worker_index",
    "is_loss_of_process",
    "iterators_on_workers",
    "num_workers_of",
    "queue_of",
]
