"""The graph of an execution: some steps in a row on one worker.

    batches, states of generators ─► step ─► step … ─► the step's own sums, the numbers that it returns

What comes back is one vector, since each tensor of a result costs a message: the sums of metrics, the staleness
of steps, and the numbers that the last step returns. Tensors that are no numbers follow one by one.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.fit.compat import trainer_module
from paceline.fit.snapshots.model_state import look_again
from paceline.parameter_server.calls_of_python import check_no_python
from paceline.parameter_server.chief_metrics import ChiefMetrics
from paceline.parameter_server.generator_states import GeneratorStates
from paceline.parameter_server.staleness import NO_VERSION, NoVersion, Version
from paceline.parameter_server.step_trace import Call, OfMetric, StepTrace, generators_of, metrics_of
from paceline.parameter_server.step_variables import move_to_chief
from paceline.strategy.compat import being_scheduled

_IN_VECTOR = tf.float64


@dataclass(frozen=True)
class Ended:
    """What an execution has brought home."""

    sums: Any
    """NumPy vector: what the steps have added to the variables of metrics, and to the counters of optimizers."""
    outputs: list[Any]
    """What each step has returned; of training and evaluation only the last. In place of what a metric says is an
    `OfMetric`."""
    calls: list[tuple[Call, Any, Any]]
    """Methods of metrics to call on the chief, with `args` and `kwargs`, in the order of the steps."""
    staleness: list[int]
    """Of each step that updates variables."""


class DispatchedGraph:
    """One kind of execution of a model.

    Args:
        model: The Keras model.
        step: From a batch to what the step returns.
        strategy: The model's.
        version: Counts the steps, if they update variables.
        keeps_outputs: Whether what each step returns is wanted, as in `predict`. Else the last one's is.
    """

    def __init__(
        self,
        model: Any,
        step: Callable[[Any], Any],
        strategy: Any,
        version: Version | NoVersion = NO_VERSION,
        *,
        keeps_outputs: bool = False,
    ) -> None:
        self._model = model
        self._strategy = strategy
        self._run = functools.partial(version.run, strategy, step)
        self._keeps_outputs = keeps_outputs
        self._updated_on_chief: list[Any] = []
        self._generators: list[Any] = []
        self._is_training = version is not NO_VERSION
        self._traced: dict[Any, TracedExecution] = {}

    def traced(self, spec: Any, num_steps: int, source: Any = None) -> "TracedExecution":
        """The function for so many steps on batches of this spec.

        Args:
            spec: `tf.TypeSpec`s in the structure of a batch, None where it has nothing.
            num_steps: At least 1.
            source: The spec of an iterator on the worker, from which the steps take their batches; None: the batches
                are arguments.
        """
        key = (num_steps, str(spec), source is None)
        if key not in self._traced:
            self._traced[key] = self._traced_anew(spec, num_steps, source)
        return self._traced[key]

    def _traced_anew(self, spec: Any, num_steps: int, source: Any) -> "TracedExecution":
        """Traces, and again as long as that has brought to light what the chief must hand over or do."""
        if self._is_training and not self._generators:  # most steps draw from them, and are not traced again for it
            self._generators = generators_of(self._model)
            move_to_chief(generator.state for generator in self._generators)
        while True:
            counters = [optimizer._iterations for optimizer in look_again(self._model).optimizers]
            move_to_chief(variable for metric in metrics_of(self._model) for variable in metric.variables)
            move_to_chief(counters)
            metrics = metrics_of(self._model)
            trace = StepTrace(metrics, self._updated_on_chief, self._generators, counters)
            execution = TracedExecution(trace, self._run, self._strategy, spec, num_steps, self._keeps_outputs)
            with being_scheduled(self._strategy):
                execution.build(source)
            check_no_python(execution.function.graph, self._model)
            found = trace.assigned_otherwise
            if not found and not trace.found_generators and metrics_of(self._model) == metrics:
                return execution
            self._updated_on_chief = [*self._updated_on_chief, *found]
            move_to_chief(generator.state for generator in trace.found_generators)
            self._generators = [*self._generators, *trace.found_generators]


class TracedExecution:
    """The concrete function of an execution, and the layout of what it takes and returns."""

    def __init__(
        self, trace: StepTrace, run: Callable[[Any], Any], strategy: Any, spec: Any, num_steps: int, keeps: bool
    ) -> None:
        self.trace = trace
        self.num_steps = num_steps
        self.generators = GeneratorStates(trace.generators)
        self._run = run
        self._strategy = strategy
        self._spec = spec
        self._keeps_outputs = keeps
        self._output_structure: Any = None
        self._output_leaves: list[Any] = []
        """For each leaf of what a step returns: an `OfMetric`, or None for a tensor."""
        self._num_counted = 0
        """Numbers of staleness, which come back behind the sums."""
        self.function: Any = None
        self.home = ChiefMetrics((), ())

    def build(self, source: Any) -> None:
        """Traces. In the scope of the strategy."""
        specs = [leaf for leaf in tf.nest.flatten(self._spec, expand_composites=True) if leaf is not None]
        arguments = specs * self.num_steps if source is None else [source]
        states = tf.TensorSpec([len(self.trace.generators), 2], tf.int64)
        counts = tf.TensorSpec([len(self.trace.counters)], tf.int64)
        function = tf.function(self._execution_of_batches if source is None else self._execution_of, autograph=False)
        self.function = function.get_concrete_function(*arguments, states, counts)
        wanted = [leaf for leaf in self._output_leaves if leaf is not None]
        self.home = ChiefMetrics([*self.trace.sums, *self.trace.counters], wanted)

    @property
    def returns_logs(self) -> bool:
        """Whether a step returns numbers by name, as Keras's own steps do."""
        return isinstance(self._output_structure, dict)

    def dispatched_values(self, num_untaken: int) -> list[Any]:
        """The last arguments of `function`: where the generators and counters of its steps begin.

        Args:
            num_untaken: Steps that have begun, and whose results are not taken yet. Each counts one: no two steps have
                the same number, and a step that is done again has the number that it had.
        """
        counts = [int(counter.numpy()) + num_untaken for counter in self.trace.counters]
        states = self.generators.dispatched(self.num_steps, self.trace.draws)
        return [tf.constant(states), tf.constant(counts, tf.int64)]

    def ended(self, arrays: Sequence[Any]) -> Ended:
        """What the function has returned, put apart."""
        vector, *others = arrays
        at = self.home.num_sums
        end = at + self._num_counted
        numbers, rest = iter(vector[end:]), iter(others)
        outputs = [
            self._output_of([next(numbers) if is_number else next(rest) for is_number in self._is_number])
            for _ in range(self.num_steps if self._keeps_outputs else 1)
        ]
        calls = [call for _ in range(self.num_steps) for call in self._calls_of(rest)]
        return Ended(vector[:at], outputs, calls, [int(one) for one in vector[at:end]])

    def _execution_of_batches(self, *leaves: Any) -> Any:
        *leaves_of_batches, states, counts = leaves
        width = len(leaves_of_batches) // self.num_steps
        batches = [self._batch_of(leaves_of_batches[i * width : (i + 1) * width]) for i in range(self.num_steps)]
        return self._execution(iter(batches), states, counts)

    def _execution_of(self, iterator: Any, states: Any, counts: Any) -> Any:
        return self._execution((next(iterator) for _ in range(self.num_steps)), states, counts)

    def _execution(self, batches: Any, states: Any, counts: Any) -> Any:
        trace = self.trace
        outputs: list[list[Any]] = []
        called: list[list[Any]] = []
        staleness: list[Any] = []
        num_generators, num_counters = len(trace.generators), len(trace.counters)
        with trace.in_step(tf.unstack(states, num=num_generators), tf.unstack(counts, num=num_counters)) as sums:
            one_step = self._one_step if self.num_steps == 1 else self._as_one_function()
            for batch in batches:
                of_step, of_calls, of_version = one_step(batch)
                outputs.append(of_step)
                called.append(of_calls)
                staleness += of_version
            added = sums()
        kept = outputs if self._keeps_outputs else outputs[-1:]
        self._is_number = [not self._keeps_outputs and _is_number(tensor) for tensor in kept[0]]
        numbers = [tensor for of_step in kept for tensor, is_ in zip(of_step, self._is_number, strict=True) if is_]
        rest = [tensor for of_step in kept for tensor, is_ in zip(of_step, self._is_number, strict=True) if not is_]
        flat = [tf.reshape(tf.cast(tensor, _IN_VECTOR), [-1]) for tensor in (*added, *staleness, *numbers)]
        self._num_counted = len(staleness)
        vector = tf.concat(flat, 0) if flat else tf.zeros([0], _IN_VECTOR)
        return [vector, *rest, *(tensor for of_calls in called for tensor in of_calls)]

    def _as_one_function(self) -> Any:
        """The step traced once, and called for each batch."""
        traced = tf.function(lambda *leaves: self._one_step(self._batch_of(list(leaves))), autograph=False)

        def one_step(batch: Any) -> Any:
            return traced(*(leaf for leaf in tf.nest.flatten(batch, expand_composites=True) if leaf is not None))

        return one_step

    def _one_step(self, batch: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """The tensors that a step returns, apart from what metrics say; those of the chief's calls; the staleness."""
        self.trace.begin_step()
        outputs, staleness = self._run(batch)
        reduction = "concat" if self._keeps_outputs else "auto"
        outputs = trainer_module.reduce_per_replica(outputs, self._strategy, reduction=reduction)
        self._output_structure = outputs
        leaves = tf.nest.flatten(outputs, expand_composites=True)
        of_metrics = [self.trace.of_metric(leaf) for leaf in leaves]
        self._output_leaves = of_metrics
        tensors = [
            tf.convert_to_tensor(leaf)
            for leaf, of_metric in zip(leaves, of_metrics, strict=True)
            if of_metric is None and leaf is not None
        ]
        self._is_none = [leaf is None for leaf in leaves]
        return tensors, list(self.trace.call_tensors), staleness

    def _batch_of(self, leaves: list[Any]) -> Any:
        given = iter(leaves)
        flat = [None if spec is None else next(given) for spec in tf.nest.flatten(self._spec, expand_composites=True)]
        return tf.nest.pack_sequence_as(self._spec, flat, expand_composites=True)

    def _output_of(self, arrays: list[Any]) -> Any:
        given = iter(arrays)
        leaves = [
            of_metric if of_metric is not None else None if is_none else next(given)
            for of_metric, is_none in zip(self._output_leaves, self._is_none, strict=True)
        ]
        if self._keeps_outputs:
            leaves = [tf.constant(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else leaf for leaf in leaves]
        return tf.nest.pack_sequence_as(self._output_structure, leaves, expand_composites=True)

    def _calls_of(self, arrays: Any) -> list[tuple[Call, Any, Any]]:
        """The calls of one step, in order, with what has come back in place of its tensors."""
        calls = []
        for call in self.trace.calls:
            leaves = tf.nest.flatten(call.arguments, expand_composites=True)
            leaves = [tf.constant(next(arrays)) if tf.is_tensor(leaf) else leaf for leaf in leaves]
            args, kwargs = tf.nest.pack_sequence_as(call.arguments, leaves, expand_composites=True)
            calls.append((call, args, kwargs))
        return calls


def _is_number(tensor: Any) -> bool:
    return bool(tensor.shape.rank == 0 and (tensor.dtype.is_floating or tensor.dtype.is_integer))


def is_of_metric(leaf: Any) -> bool:
    """Whether `leaf` stands for what a metric says."""
    return isinstance(leaf, OfMetric)
