"""`Dataset.interleave` without a `cycle_length`: as many files at a time as in a process with all cores of the host.

TensorFlow takes the number of cores that this process may use. A worker is bound to its share of them, so that its rows
would come in another order than in one process; and with `num_parallel_calls` above its share there was an error.
"""

import os
from collections.abc import Callable
from typing import Any

_AUTOTUNE = -1
_THREADS_OF_AN_ELEMENT = 3
"""Under `num_parallel_calls=AUTOTUNE` TensorFlow counts a thread that reads an element of the cycle, and two that
read ahead of it."""


class _Host:
    """What this process could use before it was bound."""

    num_cores: int | None = None
    """None: this process is not bound, and TensorFlow's own rule holds."""


def note_cores_before_binding() -> None:
    """This process is about to be bound to some of its cores."""
    _Host.num_cores = len(os.sched_getaffinity(0))


def as_unbound(interleave: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlow's method."""

    def interleaved(
        self: Any,
        map_func: Any,
        cycle_length: Any = None,
        block_length: Any = None,
        num_parallel_calls: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        is_left_out = cycle_length is None or (isinstance(cycle_length, int) and cycle_length == _AUTOTUNE)
        if _Host.num_cores is not None and is_left_out and isinstance(num_parallel_calls, int | None):
            cycle_length = cycle_length_of(_Host.num_cores, num_parallel_calls)
        return interleave(self, map_func, cycle_length, block_length, num_parallel_calls, *args, **kwargs)

    return interleaved


def cycle_length_of(num_cores: int, num_parallel_calls: int | None) -> int:
    """What TensorFlow takes in a process with so many cores; pure.

    >>> cycle_length_of(8, None), cycle_length_of(8, 2), cycle_length_of(8, 16), cycle_length_of(8, -1)
    (8, 2, 8, 3)
    """
    if num_parallel_calls is None:
        return num_cores
    if num_parallel_calls == _AUTOTUNE:
        return -(-num_cores // _THREADS_OF_AN_ELEMENT)
    return min(num_parallel_calls, num_cores)
