"""Batches of data workers: one makes plain Keras's, in rank order; of several each row comes once in an epoch."""

from pathlib import Path

import pytest

from worlds import Worlds

CASES = Path(__file__).with_name("served_cases.py")
QUICK = ("known", "unknown")
PROOF = (
    "sparse",
    "two shuffles",
    "fewer rows than ranks",
    "no rows",
    "full batches",
    "cached",
    "dict, text, scalar",
    "ragged",
    "unknown shapes",
    "repeated",
)

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]


@pytest.mark.parametrize("pipeline", [*QUICK, *(pytest.param(name, marks=pytest.mark.proof) for name in PROOF)])
def test_ranks_read_the_batches_of_one_worker_from_any_place(worlds: Worlds, pipeline: str):
    [told] = worlds.with_other_servers.run(CASES, "coordinated", pipeline).told
    for size, (expected, read, resumed) in told.items():
        assert read == expected, size
        assert resumed == [expected[1][1:], *expected[2:]], size


@pytest.mark.parametrize(
    "pipeline", ["known", *(pytest.param(name, marks=pytest.mark.proof) for name in ("two shuffles", "ragged"))]
)
def test_each_row_is_dealt_once_in_an_epoch_and_orders_differ(worlds: Worlds, pipeline: str):
    [epochs] = worlds.with_other_servers.run(CASES, "dealt", pipeline).told
    rows = [sorted(row for reader in epoch for batch in reader for row in batch[-1]) for epoch in epochs]
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) == 10
