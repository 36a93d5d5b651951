"""The same random numbers on every rank, from before the script's first line, unless it seeds itself.

Paceline slices global batches, so ranks must shuffle alike. Python's generator is seeded at once, NumPy's when the
script imports it, TensorFlow's by `strategy/operation_seeds.py`. A script that calls `keras.utils.set_random_seed`
overrides all of it, and what it has seeded by itself draws what it draws in plain Python.
"""

import builtins
import functools
import random
import sys
from typing import Any

from paceline.importing import after_import

_NUMPY_SEEDS = 2**32

_DRAWS_WHEN_IMPORTED = "rich.style"
_DRAWN_BITS = 24
_ITS_IMPORTERS = ("tensorflow", "keras", "rich")
"""Keras imports `rich`, and TensorFlow imports Keras: whoever seeds `random` before draws one number less after."""


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
    """Seeds Python and NumPy with the job's `seed`, without importing the latter.

    `numpy.random.default_rng()` without a seed, which asks the system for entropy, is given the job's as well: the
    k-th such generator of every rank draws the same numbers.
    """
    random.seed(seed)
    after_import("numpy.random", lambda numpy_random: _seed_numpy(numpy_random, seed))


def draw_at_first_import_of_keras() -> None:
    """In a standby, which has imported Keras before it is seeded: the script's first import draws what Keras's does.

    Else a restarted run would shuffle otherwise wherever the script, or nobody, seeds `random` before it imports Keras.
    Call right before the script runs; without effect where nothing has been imported yet.
    """
    if _DRAWS_WHEN_IMPORTED not in sys.modules:
        return
    plain_import = builtins.__import__

    # Nothing else hears of an import of what is imported already.
    def import_(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in _ITS_IMPORTERS:
            builtins.__import__ = plain_import
            random.getrandbits(_DRAWN_BITS)
        return plain_import(name, *args, **kwargs)

    builtins.__import__ = import_


def _seed_numpy(numpy_random: Any, seed: int) -> None:
    numpy_random.seed(seed % _NUMPY_SEEDS)
    share_default_generators(numpy_random, seed)


def share_default_generators(numpy_random: Any, job_seed: int) -> None:
    """Gives the k-th generator that `default_rng` of `numpy_random` makes without a seed the same one on all ranks."""
    entropy_rng = numpy_random.default_rng

    def default_rng(seed: Any = None) -> Any:
        """`numpy.random.default_rng`; without a seed, the next generator that all ranks of the job share."""
        if seed is None:
            seed = numpy_random.SeedSequence(job_seed, spawn_key=(_shared.num_default_generators,))
            _shared.num_default_generators += 1
        return entropy_rng(seed)

    numpy_random.default_rng = functools.wraps(entropy_rng)(default_rng)
