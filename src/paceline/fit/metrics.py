"""Metrics are sums on each rank; the ranks' sums are put together when somebody reads them.

Reading is what costs a message, so it happens where `fit` and `evaluate` read (the end of an epoch, the end of an
evaluation), not after each batch. The local sums stay as they are: the next batch adds to them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.communicator import Array, Communicator, Reduction
from paceline.fit.strategies import paceline_strategy_of

Function = Callable[..., Any]


def combined(keras_read: Function) -> Function:
    """Keras's `Trainer._get_metrics_result_or_logs` over the sums of all ranks. Collective."""

    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        strategy = paceline_strategy_of(self)
        if strategy is None or strategy.world.size == 1:
            return keras_read(self, logs)
        variables = list(self.metrics_variables)
        local = [np.asarray(variable.numpy()) for variable in variables]
        for variable, total in zip(variables, _totals(variables, local, strategy.world.communicator), strict=True):
            variable.assign(total)
        try:
            read = keras_read(self, logs)
            return _as_numbers(_with_totals(self, read, strategy) if read is logs else read)
        finally:
            for variable, value in zip(variables, local, strict=True):
                variable.assign(value)

    return _get_metrics_result_or_logs


def _with_totals(model: Any, logs: Any, strategy: Any) -> Any:
    """The last step's `logs` of a user's own `train_step`, which Keras returns as they are, over all ranks.

    A name that is one of the model's metrics takes the metric's value; any other number is averaged over the ranks.
    """
    if not isinstance(logs, dict):
        return logs
    totals = {metric.name: metric.result() for metric in model.metrics} | model.get_metrics_result()
    others = {name: value for name, value in logs.items() if name not in totals}
    numbers = [np.asarray(leaf, np.float64) for leaf in tf.nest.flatten(others)]
    sums = strategy.world.communicator.all_reduce(numbers, Reduction.SUM) if numbers else []
    means = tf.nest.pack_sequence_as(others, [np.divide(total, strategy.world.size) for total in sums])
    return {name: totals[name] if name in totals else means[name] for name in logs}


def _totals(variables: list[Any], local: list[Array], communicator: Communicator) -> list[Array]:
    """The value of each metric variable over all ranks, as its `aggregation` says."""
    sums = communicator.all_reduce(local, Reduction.SUM)
    totals = []
    for variable, own, total in zip(variables, local, sums, strict=True):
        match getattr(variable, "aggregation", "sum"):
            case "mean":
                totals.append(np.divide(total, communicator.size).astype(own.dtype))
            case "only_first_replica" | "none":
                totals.append(communicator.broadcast([own])[0])
            case _:
                totals.append(total)
    return totals


def _as_numbers(logs: Any) -> Any:
    """Values out of the variables before these get their local sums back."""
    if not isinstance(logs, dict):
        return logs
    return tf.nest.map_structure(lambda value: np.asarray(value)[()] if hasattr(value, "dtype") else value, dict(logs))
