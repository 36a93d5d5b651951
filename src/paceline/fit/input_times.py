"""When a step of one worker has its batch: the moment is an operation of its graph, as no message begins the step.

    step: next(iterator) ─► batch ─┬► the step as Keras has it
                                   └► tf.timestamp ─► a variable, which the clock reads when the step has ended

The operation is built behind the step, so that the seeds of operations in it are plain Keras's.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.comm.step_clock import StepClock
from paceline.strategy import compat
from paceline.strategy.graph_collectives import as_written

Function = Callable[..., Any]


def with_input_noted(model: Any, step: Function, by_keras: Function, clock: StepClock) -> Function:
    """What Keras makes of a training step, which tells the clock when each execution had its batch.

    Not of steps that XLA compiles, nor where an execution is several steps: each of them waits for its own batch.

    Args:
        model: Whose step.
        step: Of one batch.
        by_keras: From a step to a function of an iterator.
        clock: Of this process.
    """
    if model.jit_compile or model.steps_per_execution > 1:
        return by_keras(step)  # type: ignore[no-any-return]  # a function
    moment = _Moment()

    def noting(data: Any) -> Any:
        if tf.executing_eagerly():
            moment.now = time.time()
            return step(data)
        outputs = step(data)
        tensors = [leaf for leaf in tf.nest.flatten(data, expand_composites=True) if tf.is_tensor(leaf)]
        with tf.control_dependencies(tensors), tf.device("/device:CPU:0"):
            moment.variable().assign(tf.timestamp())
        return outputs

    function = by_keras(as_written(functools.wraps(step)(noting)))

    @functools.wraps(function)
    def noted(iterator: Any) -> Any:
        clock.input_came_at = moment.seconds
        return function(iterator)

    return noted


class _Moment:
    """Seconds since 1970, from an eager step or one in a graph."""

    def __init__(self) -> None:
        self.now: float | None = None
        self._variable: Any = None

    def variable(self) -> Any:
        """What graphs assign; no model tracks it."""
        if self._variable is None:
            with tf.init_scope(), tf.device("/device:CPU:0"):
                self._variable = compat.ResourceVariable(0.0, trainable=False, dtype=tf.float64, name="paceline_input")
        return self._variable

    def seconds(self) -> float:
        """Of the newest step."""
        if self.now is not None:
            return self.now
        if self._variable is None:
            return 0.0
        # `float(variable)` takes 4 microseconds more, in each step.
        return float(tf.raw_ops.ReadVariableOp(resource=self._variable.handle, dtype=tf.float64))
