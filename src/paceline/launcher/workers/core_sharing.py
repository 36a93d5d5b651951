"""Which cores each worker of a host gets, and how many threads. Pure.

Workers without cores of their own steal them from each other in the middle of a step, and every worker with a
thread pool for the whole host makes it worse. So neighbouring cores go together, and no core is idle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class CoreShare:
    """The cores of one worker."""

    cores: tuple[int, ...]
    """Core numbers as the operating system counts them."""
    num_threads: int
    """How many threads can really run at once; less than `cores` where a quota says so."""


def share_cores(cores: Sequence[int], num_workers: int, quota: float | None = None) -> tuple[CoreShare, ...]:
    """Shares `cores`, in the given order, out to `num_workers` workers; sizes differ by one at most.

    More workers than cores share them in turn. `quota` is how many cores' worth of time they may use
    in all (a container's limit), None without a limit.

    >>> [share.cores for share in share_cores([0, 1, 2, 3, 4], 2)]
    [(0, 1, 2), (3, 4)]
    >>> [share.cores for share in share_cores([0, 1], 3)]
    [(0,), (1,), (0,)]
    """
    if not cores or num_workers < 1:
        raise ValueError(f"received {len(cores)} cores and {num_workers} workers; expected at least one of each")
    if num_workers >= len(cores):
        sets: list[tuple[int, ...]] = [(cores[worker % len(cores)],) for worker in range(num_workers)]
    else:
        bounds = [_ceiling_division(worker * len(cores), num_workers) for worker in range(num_workers + 1)]
        sets = [tuple(cores[start:end]) for start, end in pairwise(bounds)]
    allowed = len(cores) if quota is None else max(1, int(quota / num_workers))
    return tuple(CoreShare(chosen, min(len(chosen), allowed)) for chosen in sets)


def _ceiling_division(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
