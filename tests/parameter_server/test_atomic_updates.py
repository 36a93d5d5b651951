"""Variables on parameter servers lose no update when workers add at the same time."""

from pathlib import Path

import pytest

from worlds import Worlds

CASES = Path(__file__).with_name("atomic_cases.py")


@pytest.mark.processes
def test_no_addition_of_two_workers_is_lost(worlds: Worlds) -> None:
    """Cause: Keras adds by reading and then assigning; two workers that read the same value lost one update."""
    counter, vector, iterations = worlds.with_servers.run(CASES, "added_by_two_workers", "400").same
    assert (counter, iterations) == (401, 400)
    assert vector == [-400.0] * 3
