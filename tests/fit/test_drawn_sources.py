"""Generators and PyDatasets drawn at random: all ranks together get one worker's rows, and arrays stay untouched."""

from pathlib import Path

import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "drawn_sources.py"
LIMIT_SECONDS = 400.0
NUM_DRAWN, AT_ONCE, IN_A_CHECK = 150, 25, 6


@pytest.mark.parametrize(
    ("first", "end"),
    [
        (0, IN_A_CHECK),
        *[pytest.param(at, at + AT_ONCE, marks=pytest.mark.proof) for at in range(0, NUM_DRAWN, AT_ONCE)],
    ],
)
def test_ranks_get_the_rows_of_one_worker_and_leave_arrays_as_they_are(worlds: Worlds, first: int, end: int) -> None:
    """Steps wrote into arrays that a generator had yielded, as slices of them do not know whose memory they are.

    Of the draws, about four in ten failed so. Where the arrays were read again, the ranks also got other rows.
    """
    numbers = str(first), str(end)
    [alone] = worlds.plain.run(SCRIPT, *numbers, "alone", limit_seconds=LIMIT_SECONDS).told
    ranks = worlds.of(2).run(SCRIPT, *numbers, "together", limit_seconds=LIMIT_SECONDS).told
    for number, (one, *several) in enumerate(zip(alone, *ranks, strict=True), start=first):
        assert all(rank["what"] == one["what"] for rank in several)
        chiefs, *others = (rank["noted"] for rank in several)
        assert chiefs == one["noted"], (number, one["what"])
        assert not any(others), "Python in a step runs on the chief"
        for rank in several:
            assert not any(rank["changed"]), (number, one["what"], rank["changed"])


def test_the_step_of_the_drawn_sources_writes_where_it_can(worlds: Worlds) -> None:
    """Else the test above could not fail: without Paceline, rows that the script cuts out of an array are written to.

    If TensorFlow mends that, nothing has to be copied any more (`data/foreign_memory.py`).
    """
    [num_changed] = worlds.plain.run(SCRIPT, "cut out by the script", "", "alone", limit_seconds=60.0).told
    assert num_changed == 64
