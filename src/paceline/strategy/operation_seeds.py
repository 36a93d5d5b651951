"""The two seeds that TensorFlow gives a random operation (`tf.random.normal`, `tf.nn.dropout`, `Dataset.shuffle`).

**The job's seed** is for operations that have none: ranks draw alike where the script has seeded nothing. It is not
TensorFlow's global seed. That would reach operations with a seed of their own, too, and `Dataset.shuffle(n, seed=11)`,
whose order plain TensorFlow repeats in each run, would come in another one.

    the script has set a global seed     │ as in plain TensorFlow
    the operation has a seed of its own  │ as in plain TensorFlow
    neither                              │ as if the job's seed were the global one (plain TensorFlow asks the system)

**The rank's seed** is for operations in the graph of a step. With equal seeds, all ranks would draw one noise vector
for the k-th row of each: of a batch of B rows, B / N different ones. So in the steps of a rank the first seed is moved
by its number, the chief's by nothing: ranks draw different numbers, and a repeated run draws the same. Where all ranks
must come to one value (what an optimizer does to weights, what is done between replicas) nothing is moved.

A single number (shape []) belongs to no row, and a step may branch on it (`if tf.random.uniform([]) < 0.1:`): ranks
that drew differently would part there, and wait for ever in the branch for those that are not in it. Its seed is not
moved either; but it is within a loop of the step, where `tf.map_fn` draws one for each row.

Keras's own random numbers do not come from here (`fit/replica_loops/random_rows.py`).
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from paceline.strategy import compat, seams
from paceline.strategy.seams import Seam

_BETWEEN_RANKS = 0x9E3779B1
_SEEDS = 2**31 - 1
"""TensorFlow takes seeds modulo this."""
_OPERATIONS = ("random_standard_normal", "random_uniform", "random_uniform_int", "truncated_normal")
"""Under these names `tf.random` makes the operations that take a shape."""

Seeds = tuple[int | None, int | None]


class _Job:
    seed: int | None = None
    """None: what has no seed asks the system."""
    eager_seeds = random.Random()
    """Out of which eager operations without a seed take theirs, as TensorFlow does once it is seeded."""


_job = _Job()


class _Here(threading.local):
    """What this thread is building."""

    graph: Any = None
    """The graph of the step; None outside of steps."""
    rank: int = 0
    """By whose number seeds are moved."""
    ranks_seeds: Seeds = (None, None)
    """Those that an operation has been given last,"""
    scripts_seeds: Seeds = (None, None)
    """and what they were before they were moved."""


_here = _Here()


def use_job_seed(seed: int | None) -> None:
    """Seeds what has no seed from here on; None: nothing does."""
    _job.seed = seed
    _job.eager_seeds = random.Random(seed)


def job_seed() -> int | None:
    """The seed of what has none; None: such operations draw other numbers in each run."""
    return _job.seed


def eager_seeds() -> random.Random | None:
    """The generator that eager operations without a seed take theirs from: TensorFlow's once the script has seeded it.

    None while nothing is seeded.
    """
    if compat.global_seed() is not None:
        return getattr(compat.context(), "_rng", None)
    return None if _job.seed is None else _job.eager_seeds


@contextmanager
def of_rank(rank: int) -> Iterator[None]:
    """While this lasts, random operations that are built draw this rank's numbers; eager ones stay as they are."""
    if tf.executing_eagerly() or _here.graph is not None:
        yield
        return
    _here.graph, _here.rank = compat.get_default_graph(), rank
    try:
        yield
    finally:
        _here.graph, _here.rank = None, 0


@contextmanager
def of_all_ranks() -> Iterator[None]:
    """Within `of_rank`: as without it."""
    rank, _here.rank = _here.rank, 0
    try:
        yield
    finally:
        _here.rank = rank


def _with_seeds(tensorflow_get_seed: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlow's `get_seed`, which all its random operations ask for their two seeds."""

    def get_seed(op_seed: Any) -> Any:
        is_eager = tf.executing_eagerly()
        seeds = _of_job(tensorflow_get_seed, op_seed, None if is_eager else compat.get_default_graph())
        return seeds if is_eager or not _here.rank or seeds[0] is None else _moved(seeds)

    return get_seed


def _of_job(tensorflow_get_seed: Callable[..., Any], op_seed: Any, graph: Any) -> Any:
    scripts_seed = compat.global_seed() if graph is None else graph.seed
    if op_seed is not None or scripts_seed is not None or _job.seed is None:
        return tensorflow_get_seed(op_seed)
    if graph is None:
        # Two zeros would ask the system.
        return _job.seed % _SEEDS, _job.eager_seeds.randint(0, _SEEDS) % _SEEDS or _SEEDS
    graph.seed = _job.seed
    try:
        return tensorflow_get_seed(None)
    finally:
        graph.seed = None


def _moved(seeds: Any) -> Seeds:
    first = (seeds[0] + _here.rank * _BETWEEN_RANKS) % _SEEDS
    # Of two zeros TensorFlow makes random seeds.
    _here.ranks_seeds = (first, seeds[1] if first or seeds[1] else _SEEDS)
    _here.scripts_seeds = seeds
    return _here.ranks_seeds


def _one_number_for_all(make: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlow's `make` of a random operation: of a single number in a step, with the seeds that all ranks have."""

    def made(shape: Any, *args: Any, seed: int | None = 0, seed2: int | None = 0, **kwargs: Any) -> Any:
        is_ranks = _here.rank > 0 and (seed, seed2) == _here.ranks_seeds
        if is_ranks and getattr(shape, "shape", None) == [0] and not _is_in_loop():
            seed, seed2 = _here.scripts_seeds
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


def rows() -> list[Seam]:
    """The replacements; importing this file installs them."""
    return [
        Seam(compat.random_seed, "get_seed", _with_seeds, "what has no seed draws alike on all ranks"),
        Seam(compat.gen_random_ops, _OPERATIONS, _one_number_for_all, "all ranks branch alike on a single number"),
    ]


seams.install(rows())
