"""Metrics: each rank has local sums, which are summed over ranks when a result is read.

    update_state ─► local sums (no message)            result() ─► totals over ranks ─► Keras's own result on the totals

The totals stand in for the variables while Keras computes (its `StatelessScope`); the local sums stay as they are,
and the next batch adds to them. In a step reading is an operation of the graph, outside it an ordinary call; both are
collective, as reading a metric is in `tf.distribute`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np
import tensorflow as tf

from paceline.fit import own_functions
from paceline.fit.replica import current_replica
from paceline.fit.replica_loops.losses import within_a_metric
from paceline.strategy.base import SynchronousStrategy
from paceline.strategy.graph_collectives import as_written
from paceline.strategy.per_thread import PerThread
from paceline.strategy.replica_context import PacelineReplicaContext

Function = Callable[..., Any]

_COMBINED = "_paceline_is_combined"

_reads_own = PerThread(False)
"""Whether metrics are read as they are here."""
_reads_totals = PerThread(False)
"""Whether the totals over ranks are being read."""
_readers: "WeakKeyDictionary[Any, Callable[[Sequence[Any]], list[Any]]]" = WeakKeyDictionary()
"""How a metric is read outside of steps: from its variables to their totals. Collective."""


def made(keras_init: Function) -> Function:
    """Keras's `Metric.__init__`, which sees to it that the metric is read over all ranks, whoever has written it."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        keras_init(self, *args, **kwargs)
        for class_ in type(self).__mro__:
            if issubclass(class_, keras.Metric) and class_ is not keras.Metric:
                _wrap_once(class_, "result", combined)
                _wrap_once(class_, "update_state", updated)

    return __init__


def _wrap_once(class_: type, name: str, wrap: Callable[[Function], Function]) -> None:
    own = vars(class_).get(name)
    if own is None or hasattr(own, _COMBINED):
        return
    wrapped = functools.wraps(own)(wrap(own))
    if class_.__module__.split(".")[0] == "keras":  # AutoGraph converts what users write, and nothing of Keras
        wrapped = as_written(wrapped)
    setattr(wrapped, _COMBINED, True)
    setattr(class_, name, wrapped)


def updated(keras_update: Function) -> Function:
    """A metric's `update_state`. In a step it adds this rank's rows; outside of one, all ranks add the same.

    So only a metric that is updated in steps is put together over ranks.
    """

    def update_state(self: Any, *args: Any, **kwargs: Any) -> Any:
        replica = current_replica()
        if replica is None:
            own_functions.note_metric()
            return keras_update(self, *args, **kwargs)
        remember(self, replica.strategy)
        with within_a_metric():
            return keras_update(self, *args, **kwargs)

    return update_state


def remember(metric: Any, strategy: Any) -> None:
    """From now on, `metric` is read over the ranks of `strategy`, also outside its scope."""
    if (reader := _reader_over(strategy)) is not None:
        read_by(metric, reader)


def _reader_over(strategy: Any) -> Callable[[Sequence[Any]], list[Any]] | None:
    """None where no ranks share the rows of a batch."""
    if isinstance(strategy, SynchronousStrategy) and strategy.group.size > 1:
        return functools.partial(_totals_outside, strategy)
    return None


def read_by(metric: Any, reader: Callable[[Sequence[Any]], list[Any]]) -> None:
    """From now on, `reader` gives the totals of a metric's variables outside of steps. It must not hold the metric."""
    _readers[metric] = reader


def combined(keras_result: Function) -> Function:
    """A metric's `result` over all ranks. Collective."""

    def result(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _totals_of(self.variables, _readers.get(self)):
            return keras_result(self, *args, **kwargs)

    return result


def combined_in_model(keras_get: Function) -> Function:
    """Keras's `Trainer.get_metrics_result` over all ranks, in one message. Collective."""

    def get_metrics_result(self: Any) -> Any:
        replica = current_replica()
        if replica is None:
            return keras_get(self)  # of a step that is divided, each rank has the sums of all
        strategy = replica.strategy
        for metric in self.metrics:
            remember(metric, strategy)
        with _totals_of(self.metrics_variables, _reader_over(strategy)):
            return keras_get(self)

    return get_metrics_result


@contextlib.contextmanager
def read_as_they_are() -> Iterator[None]:
    """While this lasts, metrics are read as they are here; as where a model is built, and they have no numbers yet."""
    with _reads_own.replaced(True):
        yield


@contextlib.contextmanager
def _totals_of(variables: Sequence[Any], reader: Callable[[Sequence[Any]], list[Any]] | None) -> Iterator[None]:
    """While this lasts, reading `variables` gives their totals over ranks. Collective, unless it already lasts."""
    replica = current_replica()
    alone = replica is None and reader is None
    if alone or _reads_totals.value or _reads_own.value or not variables:
        yield
        return
    if replica is not None:
        totals = _totals_in_step(variables, replica)
    else:
        assert reader is not None
        totals = reader(variables)
    known = keras.StatelessScope(state_mapping=list(zip(variables, totals, strict=True)))
    with _reads_totals.replaced(True), known:
        yield


def _totals_in_step(variables: Sequence[Any], replica: PacelineReplicaContext) -> list[Any]:
    parts = [_part(variable, tf.convert_to_tensor(variable.value), replica) for variable in variables]
    return replica.rows.statistics.summed_with(parts)


def _part(variable: Any, value: Any, replica: PacelineReplicaContext) -> Any:
    """What this rank adds to the total of a variable, as its `aggregation` says."""
    match getattr(variable, "aggregation", "sum"):
        case "mean":
            return value / tf.cast(replica.num_replicas_in_sync, value.dtype)
        case "only_first_replica" | "none":
            return value if replica.rank == 0 else tf.zeros_like(value)
        case _:
            return value


def _totals_outside(strategy: SynchronousStrategy, variables: Sequence[Any]) -> list[Any]:
    group = strategy.group
    local = [np.asarray(variable.numpy()) for variable in variables]
    totals = group.all_reduce(local)
    for index, (variable, own) in enumerate(zip(variables, local, strict=True)):
        match getattr(variable, "aggregation", "sum"):
            case "mean":
                totals[index] = np.divide(totals[index], group.size).astype(own.dtype)
            case "only_first_replica" | "none":
                totals[index] = group.broadcast([own])[0]
    return totals
