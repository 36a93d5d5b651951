"""Tracing a step as one worker of plain Keras runs it: in no strategy, alone, with the whole batch.

What is traced so is divided by rules afterwards (`spmd/`), so nothing in it may know of several workers:

    tf.distribute.get_strategy(), .get_replica_context()   TensorFlow's defaults
    strategy.num_replicas_in_sync of a Paceline strategy   1
    seeds of random operations                             those of plain TensorFlow
"""

from collections.abc import Iterator
from contextlib import contextmanager

from paceline.strategy import compat, operation_seeds
from paceline.strategy.per_thread import PerThread

_is_here = PerThread(False)


def is_as_one_worker() -> bool:
    """Whether this thread traces a step as one worker has it."""
    return _is_here.value


@contextmanager
def as_one_worker() -> Iterator[None]:
    """While this lasts, functions are traced outside of all graphs, as in a process without a strategy."""
    seeds, here = operation_seeds.of_all_ranks(), _is_here.replaced(True)
    with compat.outside_of_graphs(), compat.default_strategy(), seeds, here:
        yield
