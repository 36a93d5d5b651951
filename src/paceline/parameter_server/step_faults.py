"""What a user is told of a step that has failed on a worker: what happened, and the user's own lines.

TensorFlow tells all frames of the tracing, twice or more, with those of its threads, and the whole message again as the
worker has sent it.
"""

import tensorflow as tf

from paceline.observe.frames import is_users
from paceline.observe.graph_errors import shortened


def told_in_short(fault: BaseException, worker: int) -> BaseException:
    """An error of a TensorFlow operation with a short message, of the same class; any other exception itself.

    Args:
        fault: What the step has raised.
        worker: The index of the worker on which it ran.
    """
    if not isinstance(fault, tf.errors.OpError):
        return fault
    message = f"a step failed on worker {worker}: {shortened(fault.message, is_users)}"
    told: BaseException = type(fault)(None, None, message)
    return told.with_traceback(fault.__traceback__)
