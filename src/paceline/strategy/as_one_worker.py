"""Tracing a step as one worker of plain Keras runs it: in no strategy, alone, with the whole batch.

What is traced so is divided by rules afterwards (`spmd/`), so nothing in it may know of several workers:

    tf.distribute.get_strategy(), .get_replica_context()   TensorFlow's defaults
    strategy.num_replicas_in_sync of a Paceline strategy   1
    seeds of random operations                             those of plain TensorFlow
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.strategy import compat, operation_seeds


class _Here(threading.local):
    depth: int = 0
    """In how many traces this thread is."""


_here = _Here()


def is_as_one_worker() -> bool:
    """Whether this thread traces a step as one worker has it."""
    return _here.depth > 0


@contextmanager
def as_one_worker() -> Iterator[None]:
    """While this lasts, functions are traced outside of all graphs, as in a process without a strategy."""
    with compat.outside_of_graphs(), compat.default_strategy(), operation_seeds.of_all_ranks():
        _here.depth += 1
        try:
            yield
        finally:
            _here.depth -= 1
