"""What was once inexact: steps that need the whole batch, divided, compute what one worker computes."""

from pathlib import Path

import numpy as np
import pytest
from divided_jobs import CASES

from parity_runs import RELATIVE_FLOAT64
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("divided")]

SCRIPT = Path(__file__).with_name("divided_jobs.py")


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.proof)])
@pytest.mark.parametrize("case", CASES)
def test_what_needs_the_whole_batch(worlds: Worlds, case: str, size: int) -> None:
    """Losses over pairs of rows, statistics of the batch, random numbers of the step, branches on data."""
    [one] = worlds.plain.run(SCRIPT, case).told
    for several in worlds.of(size).run(SCRIPT, case).told:
        np.testing.assert_allclose(several, one, rtol=RELATIVE_FLOAT64, atol=1e-12)


def test_lines_that_need_all_rows_are_told(worlds: Worlds) -> None:
    output = worlds.of(2).run(SCRIPT, "contrastive").output
    [line] = [one for one in output.splitlines() if "train_step needs the rows of the whole batch in " in one]
    assert "divided_jobs.py:" in line
    assert "in contrastive (" in line
    assert "[whole-rows]" not in worlds.of(2).run(SCRIPT, "normalized").output


def test_many_messages_are_told(worlds: Worlds) -> None:
    output = worlds.of(2).run(SCRIPT, "deep").output
    [line] = [one for one in output.splitlines() if "train_step waits for messages" in one]
    assert 12 < int(line.split("latency: ")[1].split(".")[0]) < 24
    assert line.endswith("--batch-statistics local [messages]")
    assert "[messages]" not in worlds.of(2).run(SCRIPT, "normalized").output
    assert "[messages]" not in worlds.of(2).run(SCRIPT, "square").output  # none in a turn of its loop


def test_fewer_rows_than_workers_are_told(worlds: Worlds) -> None:
    """They were refused, though ranks without rows compute what one worker does, as at the end of every epoch."""
    output = worlds.of(2).run(SCRIPT, "one_row").output
    [line] = [one for one in output.splitlines() if one.endswith("[small-batch]")]
    assert "a batch of 1 rows is too small for 2 workers" in line
    assert "[small-batch]" not in worlds.of(2).run(SCRIPT, "square").output
