"""Who is made slow in the tests of stragglers (`end_to_end/stragglers.py`), and what must be said of it."""

from collections.abc import Iterable
from typing import Any

import pytest

REASONS = {
    "quota": ("is throttled",),
    "slow": ("stands still", "wait for cores that others use"),  # the second one where the machine is busy
    "spinner": ("wait for cores that others use",),
    "map": ("waits for its data",),
    "callback": ("is in callbacks",),
}


def cases(kind: str, kinds: Iterable[str], times: int) -> list[Any]:
    """Parameters kind and rank: rank 1 with `kind`, and, in `make proof`, each of two ranks with all `kinds`."""
    return [
        pytest.param(kind, 1, id=f"{kind} 1"),
        *(
            pytest.param(each, rank, id=f"{each} {rank}, {time}", marks=pytest.mark.proof)
            for time in range(times)
            for each in kinds
            for rank in (0, 1)
        ),
    ]
