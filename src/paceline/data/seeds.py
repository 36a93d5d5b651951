"""The same random numbers on every rank, from before the script's first line, unless it seeds itself.

Paceline slices global batches, so ranks must shuffle alike. Python's generator is seeded at once, NumPy's and
TensorFlow's when the script imports them. A script that calls `keras.utils.set_random_seed` overrides all of it.
"""

import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paceline.importing import after_import, around_import

_NUMPY_SEEDS = 2**32

_DRAWING_MODULES = ("tensorflow", "keras", "rich.style")
"""Importing them draws from Python's generator (the last one does, and the others import it). A standby, which imports
them before it is seeded, would draw other numbers than a worker that imports them afterwards."""


class _Shared:
    """What ranks count alike."""

    num_default_generators = 0


_shared = _Shared()


def num_default_generators() -> int:
    """How many generators `numpy.random.default_rng()` has made without a seed."""
    return _shared.num_default_generators


def set_num_default_generators(number: int) -> None:
    """Makes the next one the `number`-th (from 0): a run goes on where another one stopped."""
    _shared.num_default_generators = number


def agree_seeds(seed: int) -> None:
    """Seeds Python, NumPy and TensorFlow with the job's `seed`, without importing the latter two.

    `numpy.random.default_rng()` without a seed, which asks the system for entropy, is given the job's as well: the
    k-th such generator of every rank draws the same numbers.

    Importing TensorFlow and Keras leaves Python's generator alone, so that a standby, which imports them before it is
    seeded, draws the same numbers. (In plain Python they draw one: it shows in a script that seeds `random` before
    it imports Keras.)
    """
    random.seed(seed)
    for name in _DRAWING_MODULES:
        around_import(name, _python_numbers_untouched)
    after_import("numpy.random", lambda numpy_random: _seed_numpy(numpy_random, seed))
    after_import("tensorflow", lambda tensorflow: _seed_tensorflow(tensorflow, seed))


@contextmanager
def _python_numbers_untouched() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)


def _seed_numpy(numpy_random: Any, seed: int) -> None:
    numpy_random.seed(seed % _NUMPY_SEEDS)
    entropy_rng = numpy_random.default_rng
    job_seed = seed

    def default_rng(seed: Any = None) -> Any:
        """`numpy.random.default_rng`; without a seed, the next generator that all ranks of the job share."""
        if seed is None:
            seed = numpy_random.SeedSequence(job_seed, spawn_key=(_shared.num_default_generators,))
            _shared.num_default_generators += 1
        return entropy_rng(seed)

    numpy_random.default_rng = functools.wraps(entropy_rng)(default_rng)


def _seed_tensorflow(tensorflow: Any, seed: int) -> None:
    tensorflow.random.set_seed(seed % _NUMPY_SEEDS)
