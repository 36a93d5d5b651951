"""What a parity job is, and the list of all of them."""

from collections.abc import Callable
from typing import Any

IN_EVERY_CHECK = (2,)

Job = Callable[[], dict[str, Any] | None]
"""Trains and returns ``model`` (or ``weights``, a list of arrays) and ``history``; None: this Keras cannot."""

JOBS: dict[str, Job] = {}


def job(worlds: tuple[int, ...] = IN_EVERY_CHECK, dtype: str = "float64") -> Callable[[Job], Job]:
    """Registers a job.

    Args:
        worlds: The world sizes that run it in every check; the others do in `make proof`. Larger ones are for what
            rests on the number of ranks: ranks without rows, and where rows do not divide.
        dtype: Keras's floatx while it runs.
    """

    def declare(function: Job) -> Job:
        register(function.__name__, function, worlds, dtype)
        return function

    return declare


def register(name: str, function: Job, worlds: tuple[int, ...] = IN_EVERY_CHECK, dtype: str = "float64") -> None:
    """Registers a job that is made in a loop; its name stands in `rows.GENERATED`."""
    function.worlds, function.dtype = worlds, dtype
    JOBS[name] = function
