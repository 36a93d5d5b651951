"""A step traced as one worker of plain Keras runs it, which `spmd/` divides; and the user's lines in it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from paceline.observe.frames import users_line_of_stack
from paceline.strategy.graph_collectives import as_written

Function = Callable[..., Any]


def traced_step(step_function: Function, specs: Any) -> Any:
    """The concrete function of a step of one batch. Within `as_one_worker`.

    Args:
        step_function: Keras's, or a user's, of one batch.
        specs: What is known of the whole batch.
    """
    return tf.function(_run_by_default(step_function), reduce_retracing=True).get_concrete_function(specs)


def traced_in_no_order(step_function: Function, specs: Any) -> Any:
    """As `traced_step`, but nothing waits for anything whose result it does not read.

    Else TensorFlow lets all outputs wait for all that reads a variable. For steps without effects, whose parts run by
    themselves.
    """
    run = _run_by_default(step_function)
    return tf.compat.v1.wrap_function(
        lambda *flat: run(tf.nest.pack_sequence_as(specs, flat)), signature=tf.nest.flatten(specs)
    )


def _run_by_default(step_function: Function) -> Function:
    """As Keras calls a step where there is no strategy: operations get the seeds of the function that they are in."""

    def one_step_on_data(data: Any) -> Any:
        return tf.distribute.get_strategy().run(step_function, args=(data,))

    return as_written(one_step_on_data)


def users_line_in_step(operation: Any) -> str:
    """The line of the user's code that has made an operation of a traced step; "" if Keras has done so by itself.

    What is above the step in the stack has only called `fit`, and is nobody's reason for an operation.
    """
    return users_line_of_stack(_inside(operation.traceback or ()))


def _inside(frames: Iterable[Any]) -> Sequence[Any]:
    frames = list(frames)
    around = [index for index, frame in enumerate(frames) if frame.filename == __file__]
    return frames[around[-1] + 1 :] if around else frames
