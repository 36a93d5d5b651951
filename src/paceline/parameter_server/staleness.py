"""How stale a step is: how many updates by others lie between its reading of the variables and its own update.

A version on the first parameter server counts the updates of a model; each step raises it by one:

    read the version ──► read variables, compute, update them ──► raise the version
           │                                                             │
         before ──────────────────────► staleness ◄──────────────── its value until then

Each arrow waits for the whole of what stands before it. An update by another step thus counts if its last assignment
lies between.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from paceline.parameter_server.step_variables import is_of_step
from paceline.strategy.compat import ResourceVariable, get_default_graph

MEAN, LARGEST = "staleness", "max_staleness"
"""The names in logs."""


class Version:
    """Counts the updates of a model, on the first parameter server."""

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("/job:ps/task:0/device:CPU:0"):
            self.count = ResourceVariable(0, trainable=False, dtype=tf.int64, name="version")
            """int64 scalar: the updates so far."""

    def run(self, strategy: Any, step: Callable[[Any], Any], batch: Any) -> tuple[Any, list[Any]]:
        """Runs a step that updates variables, in a graph.

        Args:
            strategy: A `ParameterServerStrategy`.
            step: From a batch to what it returns.
            batch: Its argument.

        Returns:
            What the step returns, and a list of its staleness: a scalar, int64.
        """
        graph = get_default_graph()
        with tf.device(self.count.device):
            before = self.count.read_value()
        num_before = len(graph.get_operations())

        def begun(batch: Any) -> Any:  # in it, since a replica's thread does not know what is around `run`
            with tf.control_dependencies([before]):
                return step(batch)

        outputs = strategy.run(begun, args=(batch,))
        on_servers = [one for one in graph.get_operations()[num_before:] if _uses_server(one)]
        with tf.device(self.count.device), tf.control_dependencies(on_servers):
            # One operation: of two steps that end together, each has to get a number of its own.
            after = tf.raw_ops.ResourceCountUpTo(resource=self.count.handle, limit=tf.int64.max, T=tf.int64)
            return outputs, [after - before]


def _uses_server(operation: Any) -> bool:
    return any(source.dtype == tf.resource and not is_of_step(source) for source in operation.inputs)


class NoVersion:
    """For steps that update nothing, as in `evaluate`."""

    def run(self, strategy: Any, step: Callable[[Any], Any], batch: Any) -> tuple[Any, list[Any]]:
        """As `Version.run`; the list is empty."""
        return strategy.run(step, args=(batch,)), []


NO_VERSION = NoVersion()


class StalenessSeen:
    """What the steps of an epoch have seen."""

    def __init__(self) -> None:
        self._num_steps = 0
        self._sum = 0
        self._largest = 0

    def add(self, of_steps: Sequence[int]) -> None:
        """Adds steps that have ended."""
        self._num_steps += len(of_steps)
        self._sum += sum(of_steps)
        self._largest = max(self._largest, *of_steps, 0)

    def logs(self) -> Mapping[str, float]:
        """Mean and maximum over the steps; empty if there were none."""
        if not self._num_steps:
            return {}
        return {MEAN: self._sum / self._num_steps, LARGEST: float(self._largest)}
