"""What becomes of metrics and random generators while a step is traced.

The variables of metrics and generators are replaced by the step's own (`step_variables.py`). Two more things are
noticed, on the metrics themselves:

    result()         what it returns is the chief's to compute: a step knows only its own rows
    update_state()   a metric that does more than add (a maximum, the newest value) is updated on the chief, with the
                     arguments that come back from the step
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from paceline.fit.compat import all_layers
from paceline.parameter_server.step_variables import Additions, StepVariable, swapped_for

Function = Callable[..., Any]


class _Here:
    """The step that is being traced, of the whole process: a worker with several devices has a thread for each."""

    trace: "StepTrace | None" = None


_here = _Here()


@dataclass(frozen=True)
class OfMetric:
    """In place of a number that a step returns: what a metric's `result` is, or one number of it."""

    metric: Any
    key: str | None


@dataclass(frozen=True)
class Call:
    """A method of a metric that the chief is to call."""

    metric: Any
    method: str
    arguments: Any
    """`(args, kwargs)`, with `None` in place of each tensor."""


@dataclass
class StepTrace:
    """Of one tracing of one step.

    Args:
        metrics: All metrics of the model, also those of which a metric consists.
        updated_on_chief: Those of them that are.
        generators: The seed generators whose states the chief hands to steps.
        counters: The `iterations` of optimizers, whose values the chief hands to steps.
    """

    metrics: Sequence[Any]
    updated_on_chief: Sequence[Any]
    generators: Sequence[Any]
    counters: Sequence[Any]
    additions: Additions = field(default_factory=Additions)
    found_generators: list[Any] = field(default_factory=list)
    """Others that the step has drawn from: it must be traced again."""
    draws: dict[int, list[bool]] = field(default_factory=dict)
    """By the identity of a generator, whether each draw of a step was an ordered one."""
    calls: list[Call] = field(default_factory=list)
    """Of the step that is being traced, and the tensors in their arguments:"""
    call_tensors: list[Any] = field(default_factory=list)
    _results: dict[int, tuple[Any, OfMetric]] = field(default_factory=dict)

    @property
    def sums(self) -> list[Any]:
        """The variables of metrics that are added up."""
        own = {id(variable): variable for metric in self.metrics for variable in metric.variables}
        for metric in self.updated_on_chief:
            for variable in metric.variables:
                own.pop(id(variable), None)
        return list(own.values())

    @property
    def assigned_otherwise(self) -> list[Any]:
        """Metrics that do more than add, and are not updated on the chief: the step must be traced again."""
        found = self.additions.assigned_otherwise
        return [
            metric
            for metric in self.metrics
            if not nested_metrics(metric) and any(id(variable) in found for variable in metric.variables)
        ]

    def begin_step(self) -> None:
        """The tracing of one step begins. Later steps of an execution do what the first does."""
        self.calls, self.call_tensors, self.draws, self._results = [], [], {}, {}

    def of_metric(self, leaf: Any) -> OfMetric | None:
        """Which metric's result a number is that the step returns; None for any other."""
        kept = self._results.get(id(leaf))
        return None if kept is None else kept[1]

    @contextlib.contextmanager
    def in_step(self, states: Sequence[Any], counts: Sequence[Any]) -> Iterator[Callable[[], list[Any]]]:
        """While the steps of one execution are traced.

        Args:
            states: Of the generators.
            counts: Of the counters.

        Yields:
            What the steps so far have added to the variables in `sums`, then to `counters`.
        """
        sums = [StepVariable(like, tf.zeros(like.shape, like._value.dtype), self.additions) for like in self.sums]
        drawn = [
            StepVariable(generator.state, tf.cast(state, generator.state._value.dtype), Additions())
            for generator, state in zip(self.generators, states, strict=True)
        ]
        counted = [
            StepVariable(counter, tf.cast(count, counter._value.dtype), Additions())
            for counter, count in zip(self.counters, counts, strict=True)
        ]

        def added() -> list[Any]:
            ahead = [variable - tf.cast(count, variable.dtype) for variable, count in zip(counted, counts, strict=True)]
            return [*map(tf.convert_to_tensor, sums), *ahead]

        likes = [*self.sums, *(generator.state for generator in self.generators), *self.counters]
        before, _here.trace = _here.trace, self
        try:
            with swapped_for(zip(likes, [*sums, *drawn, *counted], strict=True)), self._methods_replaced():
                yield added
        finally:
            _here.trace = before
        for variable in (*sums, *drawn, *counted):
            variable.destroy()

    def note_draw(self, generator: Any, ordered: bool) -> None:
        """The step draws from a seed generator."""
        if any(known is generator for known in self.generators):
            self.draws.setdefault(id(generator), []).append(ordered)
        elif not any(known is generator for known in self.found_generators):
            self.found_generators.append(generator)

    @contextlib.contextmanager
    def _methods_replaced(self) -> Iterator[None]:
        replaced: list[tuple[Any, str]] = []

        def replace(metric: Any, name: str, method: Function) -> None:
            object.__setattr__(metric, name, method)
            replaced.append((metric, name))

        try:
            for metric in self.metrics:
                replace(metric, "result", self._noticed(metric, metric.result))
            for metric in self.updated_on_chief:
                for name in ("update_state", "reset_state"):
                    replace(metric, name, self._left_to_chief(metric, name))
            yield
        finally:
            for metric, name in replaced:
                object.__delattr__(metric, name)

    def _noticed(self, metric: Any, result: Function) -> Function:
        def noticed_result() -> Any:
            value = result()
            numbers = value.items() if isinstance(value, dict) else [(None, value)]
            for key, number in numbers:
                self._results[id(number)] = (number, OfMetric(metric, key))
            return value

        return noticed_result

    def _left_to_chief(self, metric: Any, name: str) -> Function:
        def method(*args: Any, **kwargs: Any) -> None:
            leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
            self.call_tensors += [leaf for leaf in leaves if tf.is_tensor(leaf)]
            self.calls.append(Call(metric, name, (args, kwargs)))

        return method


def nested_metrics(metric: Any) -> list[Any]:
    """Those of which `metric` consists, as the one in which Keras keeps what `compile` was given."""
    return list(getattr(metric, "metrics", None) or ())


def metrics_of(model: Any) -> list[Any]:
    """All metrics of a model, each before those of which it consists."""
    found: list[Any] = []
    left = list(reversed(model.metrics))
    while left:
        metric = left.pop()
        if isinstance(metric, keras.Metric) and not any(metric is one for one in found):
            found.append(metric)
            left += reversed(nested_metrics(metric))
    return found


def generators_of(model: Any) -> list[Any]:
    """The seed generators that the layers of a model hold as attributes, as Keras's own do; a step may draw from
    others, too."""
    held = [value for layer in all_layers(model) for value in vars(layer).values()]
    generators = [value for value in held if isinstance(value, keras.random.SeedGenerator)]
    return list({id(generator): generator for generator in generators}.values())


def drawn_in_dealt_step(keras_next: Function) -> Function:
    """Keras's `SeedGenerator.next`, whose draws in a dispatched step are counted."""

    def next_(self: Any, ordered: bool = True) -> Any:
        if _here.trace is not None:
            _here.trace.note_draw(self, ordered)
        return keras_next(self, ordered=ordered)

    return next_
