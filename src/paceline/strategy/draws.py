"""TensorFlow's own random operations (`tf.random.normal`, `tf.nn.dropout`) in the graph of a step.

Such an operation takes two seeds when it is built: the graph's, and its own or its number in the graph. Both are the
same on all ranks, which would draw one noise vector for the k-th row of each: of a batch of B rows, B / N different
ones. So a rank builds its steps under a global seed of its own, the chief under the script's: ranks draw
different numbers, and a repeated run draws the same. Where all ranks must come to one value (what an optimizer does to
weights, what is done between replicas) the script's seed is in force again.

Keras's own random numbers do not come from here (`fit/random_rows.py`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from paceline.strategy import compat

_BETWEEN_RANKS = 0x9E3779B1
_SEEDS = 2**31 - 1
"""TensorFlow takes seeds modulo this."""


class _Here(threading.local):
    """What this thread is building."""

    scripts_seed: int | None = None
    """The global seed that the step's graph has elsewhere; None outside of steps."""


_here = _Here()


@contextmanager
def of_rank(rank: int) -> Iterator[None]:
    """While this lasts, random operations that are built draw this rank's numbers; eager ones stay as they are."""
    if rank == 0 or tf.executing_eagerly() or _here.scripts_seed is not None:
        yield
        return
    graph = compat.get_default_graph()
    if graph.seed is None:  # another number each time, on each rank
        yield
        return
    _here.scripts_seed = graph.seed
    try:
        with _seeded((graph.seed + rank * _BETWEEN_RANKS) % _SEEDS):
            yield
    finally:
        _here.scripts_seed = None


@contextmanager
def of_all_ranks() -> Iterator[None]:
    """Within `of_rank`: as without it."""
    if _here.scripts_seed is None or tf.executing_eagerly():
        yield
        return
    with _seeded(_here.scripts_seed):
        yield


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """As `tf.random.set_seed` within a graph, for as long as this lasts."""
    graph = compat.get_default_graph()
    before = graph.seed
    graph.seed = seed
    try:
        yield
    finally:
        graph.seed = before
