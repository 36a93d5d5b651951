"""TensorFlow's own random operations (`tf.random.normal`, `tf.nn.dropout`) in the graph of a step.

Such an operation takes two seeds when it is built: the graph's, and its own or its number in the graph. Both are the
same on all ranks, which would draw one noise vector for the k-th row of each: of a batch of B rows, B / N different
ones. So a rank builds its steps under a global seed of its own, the chief under the script's: ranks draw
different numbers, and a repeated run draws the same. Where all ranks must come to one value (what an optimizer does to
weights, what is done between replicas) the script's seed is in force again.

A single number (shape []) belongs to no row, and a step may branch on it (`if tf.random.uniform([]) < 0.1:`): ranks
that drew differently would part there, and wait for ever in the branch for those that are not in it. It keeps the
script's seed, too; not within a loop of the step, where `tf.map_fn` draws one for each row.

Keras's own random numbers do not come from here (`fit/random_rows.py`).
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from paceline.strategy import compat

_BETWEEN_RANKS = 0x9E3779B1
_SEEDS = 2**31 - 1
"""TensorFlow takes seeds modulo this."""
_OPERATIONS = ("random_standard_normal", "random_uniform", "random_uniform_int", "truncated_normal")
"""Under these names `tf.random` makes the operations that take a shape."""


class _Here(threading.local):
    """What this thread is building."""

    scripts_seed: int | None = None
    """The global seed that the step's graph has elsewhere; None outside of steps."""
    ranks_seed: int | None = None
    """The one that it has now."""
    graph: Any = None
    """That graph."""


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
    _here.scripts_seed, _here.graph = graph.seed, graph
    _here.ranks_seed = (graph.seed + rank * _BETWEEN_RANKS) % _SEEDS
    try:
        with _seeded(_here.ranks_seed):
            yield
    finally:
        _here.scripts_seed = _here.ranks_seed = _here.graph = None


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


def _one_number_for_all(make: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlow's `make` of a random operation: of a single number in a step, with the seed that all ranks have."""

    @functools.wraps(make)
    def made(shape: Any, *args: Any, seed: int | None = 0, seed2: int | None = 0, **kwargs: Any) -> Any:
        is_ranks = _here.scripts_seed is not None and seed == _here.ranks_seed
        if is_ranks and getattr(shape, "shape", None) == [0] and not _is_in_loop():
            assert _here.scripts_seed is not None
            seed = _here.scripts_seed % _SEEDS
            if not seed and not seed2:
                seed2 = _SEEDS  # as TensorFlow does: of two zeros it makes random seeds
        return make(shape, *args, seed=seed, seed2=seed2, **kwargs)

    return made


def _is_in_loop() -> bool:
    """Whether what is built now is in a loop of the step."""
    graph = compat.get_default_graph()
    while graph is not None and graph is not _here.graph:
        if isinstance(graph, compat.WhileBodyFuncGraph):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


for _name in _OPERATIONS:
    setattr(compat.gen_random_ops, _name, _one_number_for_all(getattr(compat.gen_random_ops, _name)))
