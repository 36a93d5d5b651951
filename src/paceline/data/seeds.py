"""The same random numbers on every rank, from before the script's first line, unless it seeds itself.

Paceline slices global batches, so ranks must shuffle alike. Python's generator is seeded at once, NumPy's and
TensorFlow's when the script imports them. A script that calls `keras.utils.set_random_seed` overrides all of it.
"""

import functools
import random
from typing import Any

from paceline.importing import after_import

_NUMPY_SEEDS = 2**32


def agree_seeds(seed: int) -> None:
    """Seeds Python, NumPy and TensorFlow with the job's `seed`, without importing the latter two.

    `numpy.random.default_rng()` without a seed, which asks the system for entropy, is given the job's as well: the
    k-th such generator of every rank draws the same numbers.
    """
    random.seed(seed)
    after_import("numpy.random", lambda numpy_random: _seed_numpy(numpy_random, seed))
    after_import("tensorflow", lambda tensorflow: _seed_tensorflow(tensorflow, seed))


def _seed_numpy(numpy_random: Any, seed: int) -> None:
    numpy_random.seed(seed % _NUMPY_SEEDS)
    entropy_rng = numpy_random.default_rng
    children = numpy_random.SeedSequence(seed)

    def default_rng(seed: Any = None) -> Any:
        """`numpy.random.default_rng`; without a seed, the next generator that all ranks of the job share."""
        return entropy_rng(children.spawn(1)[0] if seed is None else seed)

    numpy_random.default_rng = functools.wraps(entropy_rng)(default_rng)


def _seed_tensorflow(tensorflow: Any, seed: int) -> None:
    tensorflow.random.set_seed(seed % _NUMPY_SEEDS)
