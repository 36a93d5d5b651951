"""What Keras's loops call for each execution, in place of the functions that Keras makes: they dispatch.

fit, evaluate: Keras's loop ─► function(iterator) ─► reads the batches, dispatches them, and returns the logs so far
predict:       Keras's loop ─► function(batches)  ─► dispatches them, and returns what will be their outputs
"""

import functools
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from paceline.comm.world import current_world
from paceline.parameter_server.dispatched_graph import DispatchedGraph, Ended, TracedExecution, is_of_metric
from paceline.parameter_server.staleness import NO_VERSION, StalenessSeen, Version
from paceline.parameter_server.staleness_bound import STEPS_AHEAD, StalenessBound
from paceline.parameter_server.step_dispatcher import StepDispatcher, as_tensors
from paceline.parameter_server.worker_data import WorkerIterator
from paceline.strategy.coordination import call_on_worker, num_workers_of

_LOGGER = logging.getLogger("paceline")

_dispatchers: "WeakKeyDictionary[Any, StepDispatcher]" = WeakKeyDictionary()
"""By model: whoever needs all its steps to have ended drains this one (`drained`)."""
_versions: "WeakKeyDictionary[Any, Version]" = WeakKeyDictionary()


def dispatcher_of(model: Any) -> StepDispatcher:
    """The one dispatcher of a model under parameter servers."""
    if model not in _dispatchers:
        strategy = model.distribute_strategy
        most = STEPS_AHEAD * num_workers_of(strategy)
        _dispatchers[model] = StepDispatcher(strategy, StalenessBound(most, getattr(strategy, "max_staleness", None)))
    return _dispatchers[model]


def version_of(model: Any) -> Version:
    """The one version of a model under parameter servers."""
    if model not in _versions:
        _versions[model] = Version()
    return _versions[model]


def drain(model: Any) -> None:
    """Waits until no step of `model` is running, and takes what the steps have brought. Nothing for other models.

    Snapshots, the end of an epoch, the beginning of `evaluate` and `predict`, and saving call this.

    Raises:
        Exception: what a step has raised.
    """
    if model in _dispatchers:
        _dispatchers[model].drain()


def end_pass(model: Any) -> None:
    """At the end of an epoch, an evaluation or a prediction: drains, and says how many of its steps were done again.

    Raises:
        Exception: what a step has raised.
    """
    drain(model)
    if model in _dispatchers and (num_redone := _dispatchers[model].take_num_redone()):
        steps = "1 step was" if num_redone == 1 else f"{num_redone} steps were"
        _LOGGER.info("%s done again, because a worker was lost: what is counted is exact", steps)


def cancel(model: Any) -> None:
    """Ends all steps of `model`, and forgets what they would have brought."""
    if model in _dispatchers:
        _dispatchers[model].cancel()


class DispatchedLogs(dict[str, Any]):
    """The logs of the steps that had ended when Keras asked.

    Args:
        logs: The logs; empty while no step of the epoch has ended.
        function: Whose steps.
    """

    def __init__(self, logs: dict[str, Any], function: "DealtFunction") -> None:
        super().__init__(logs)
        self._function = function

    def now(self) -> Any:
        """Those of the steps that have ended by now."""
        return self._function.logs() or self

    def of_a_step(self) -> Any:
        """Those of the steps that have ended by now; waits until one has."""
        self._function.wait_for_first()
        return self.now()


class DealtFunction:
    """In place of a `train_function` or `test_function`.

    Args:
        model: The Keras model.
        step_function: Its `train_step` or `test_step`.
    """

    def __init__(self, model: Any, step_function: Callable[[Any], Any]) -> None:
        self._model = model
        version = version_of(model) if step_function == model.train_step else NO_VERSION
        self._graph = DispatchedGraph(model, step_function, model.distribute_strategy, version)
        self._staleness = StalenessSeen()
        self._newest: Any = None
        """The newest step that has ended: its execution, and what it returns."""

    def __call__(self, iterator: Any) -> Any:
        """Dispatches the next execution.

        Args:
            iterator: Over batches. If it is no iterator of a dataset, this waits for the steps (`train_on_batch`).

        Returns:
            The logs of the steps that have ended, as `DispatchedLogs`. What is no dict is that of one step at least.

        Raises:
            StopIteration: there are no more batches.
        """
        dispatcher, num_steps = dispatcher_of(self._model), int(self._model.steps_per_execution)
        if isinstance(iterator, WorkerIterator):
            execution = self._graph.traced(iterator.element_spec, num_steps, iterator.iterator_spec)
            arguments: list[Any] = [iterator.on_workers]
        else:
            batches = _next_batches(iterator, num_steps)
            current_world().clock.input_ended()
            execution = self._graph.traced(_spec_of(iterator, batches[0]), len(batches))
            arguments = [tensor for batch in batches for tensor in as_tensors(batch)]
        arguments += execution.dispatched_values(dispatcher.num_untaken)

        def take(arrays: Any) -> None:
            self._take(execution, execution.ended(arrays))

        call = functools.partial(call_on_worker, execution.function, arguments)
        if isinstance(iterator, WorkerIterator):
            call = functools.partial(iterator.read_by, call)
        dispatcher.dispatch(execution, call, take)
        if not isinstance(iterator, (tf.data.Iterator, WorkerIterator)):
            dispatcher.drain()
            self._staleness = StalenessSeen()  # the list of results that `train_on_batch` returns has no place for it
        elif not execution.returns_logs:
            self.wait_for_first()
        return self.logs()

    def wait_for_first(self) -> None:
        """Waits until a step of the epoch has ended."""
        while self._newest is None:
            dispatcher_of(self._model).wait_for_one()

    def begin(self) -> None:
        """An epoch begins: no step of it has ended."""
        self._newest = None
        self._staleness = StalenessSeen()

    def logs(self) -> Any:
        """What the newest step returns, with metrics over all rows of the steps that have ended."""
        if self._newest is None:
            return DispatchedLogs({}, self)
        execution, outputs = self._newest
        results = iter(execution.home.results())
        logs = tf.nest.map_structure(lambda leaf: next(results) if is_of_metric(leaf) else leaf, outputs)
        return DispatchedLogs({**logs, **self._staleness.logs()}, self) if isinstance(logs, dict) else logs

    def _take(self, execution: TracedExecution, ended: Ended) -> None:
        execution.home.add(ended.sums)
        self._staleness.add(ended.staleness)
        for call, args, kwargs in ended.calls:
            getattr(call.metric, call.method)(*args, **kwargs)
        self._newest = execution, ended.outputs[-1]


class Deferred:
    """What a dispatched `predict_step` will return.

    Args:
        dispatcher: Of the step.
    """

    def __init__(self, dispatcher: StepDispatcher) -> None:
        self._dispatcher = dispatcher
        self.outputs: list[Any] = []
        """Of each step of the execution, once that has ended."""

    def wait(self) -> list[Any]:
        """The outputs of each step."""
        while not self.outputs:
            self._dispatcher.wait_for_one()
        return self.outputs


class DealtPrediction:
    """In place of a `predict_function`.

    Args:
        model: The Keras model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._graph = DispatchedGraph(model, model.predict_step, model.distribute_strategy, keeps_outputs=True)

    def __call__(self, batches: list[Any]) -> Deferred:
        """Dispatches an execution on these batches."""
        dispatcher = dispatcher_of(self._model)
        batches = [_without_optionals(batch) for batch in batches]
        execution = self._graph.traced(_as_spec(batches[0]), len(batches))
        arguments = [tensor for batch in batches for tensor in as_tensors(batch)]
        arguments += execution.dispatched_values(dispatcher.num_untaken)
        deferred = Deferred(dispatcher)

        def take(arrays: Any) -> None:
            deferred.outputs = execution.ended(arrays).outputs

        call = functools.partial(call_on_worker, execution.function, arguments)
        dispatcher.dispatch(execution, call, take)
        return deferred


def put_together(keras_concat: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keras's `potentially_ragged_concat`, which waits for what was dispatched; the rows in the order of the data."""

    def potentially_ragged_concat(tensors: list[Any]) -> Any:
        if not (tensors and isinstance(tensors[0], Deferred)):
            return keras_concat(tensors)
        steps = [output for deferred in tensors for output in deferred.wait()]
        columns = zip(*(_leaves(output) for output in steps), strict=True)
        return _packed(steps[0], [keras_concat(list(column)) for column in columns])

    return potentially_ragged_concat


def _leaves(structure: Any) -> list[Any]:
    return list(tf.nest.flatten(structure))


def _packed(structure: Any, leaves: list[Any]) -> Any:
    return tf.nest.pack_sequence_as(structure, leaves)


def _next_batches(iterator: Any, most: int) -> list[Any]:
    """The next batches, at most so many.

    Raises:
        StopIteration: there are none.
    """
    batches: list[Any] = []
    while len(batches) < most:
        try:
            batches.append(_without_optionals(next(iterator)))
        except (StopIteration, tf.errors.OutOfRangeError):
            break
    if not batches:
        raise StopIteration
    return batches


def _without_optionals(batch: Any) -> Any:
    """Data of a generator have an empty `Optional` where there is nothing; Keras's own loop takes it for None, too."""
    return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, batch)


def _spec_of(iterator: Any, batch: Any) -> Any:
    """The spec of all batches of an iterator; of any other source that of `batch`."""
    spec = getattr(iterator, "element_spec", None)
    if spec is None:
        return _as_spec(batch)
    return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.OptionalSpec) else leaf, spec)


def _as_spec(batch: Any) -> Any:
    """That of one batch, with any number of rows."""

    def spec(leaf: Any) -> Any:
        if leaf is None:
            return None
        if isinstance(leaf, (tf.Tensor, np.ndarray)) and len(leaf.shape) > 0:
            return tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype)
        return tf.type_spec_from_value(leaf if tf.is_tensor(leaf) else tf.convert_to_tensor(leaf))

    return tf.nest.map_structure(spec, batch)
