"""What was once inexact: steps that need the whole batch, divided, compute what one worker computes."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from divided_jobs import CASES

from parity_runs import RELATIVE_FLOAT64
from worlds import Case, Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("divided")]

SCRIPT = Path(__file__).with_name("divided_jobs.py")


IN_EVERY_CHECK = ("contrastive", "normalized", "noise", "branch", "square", "one_row", "two_lengths")
"""Pairs of rows, statistics, draws, branches, loops, fewer rows than workers, and rows of two lengths."""

RunOnTwo = Callable[[str], Case]


@pytest.fixture(scope="module")
def on_two(worlds: Worlds) -> RunOnTwo:
    """Runs a case on two workers when it is first asked for."""
    return functools.cache(lambda case: worlds.of(2).run(SCRIPT, case))


def _cases() -> list[Any]:
    proof = pytest.mark.proof
    return [
        *(pytest.param(case, 2, marks=() if case in IN_EVERY_CHECK else proof) for case in CASES),
        *(pytest.param(case, 3, marks=proof) for case in CASES),
    ]


@pytest.mark.parametrize(("case", "size"), _cases())
def test_what_needs_the_whole_batch(worlds: Worlds, on_two: RunOnTwo, case: str, size: int) -> None:
    """Losses over pairs of rows, statistics of the batch, random numbers of the step, branches on data."""
    [one] = worlds.plain.run(SCRIPT, case).told
    for several in (on_two(case) if size == 2 else worlds.of(size).run(SCRIPT, case)).told:
        np.testing.assert_allclose(several, one, rtol=RELATIVE_FLOAT64, atol=1e-12)


def test_lines_that_need_all_rows_are_told(on_two: RunOnTwo) -> None:
    output = on_two("contrastive").output
    [line] = [one for one in output.splitlines() if "train_step needs the rows of the whole batch in " in one]
    assert "divided_jobs.py:" in line
    assert "in contrastive (" in line
    assert "[whole-rows]" not in on_two("normalized").output


@pytest.mark.proof
def test_many_messages_are_told(on_two: RunOnTwo) -> None:
    output = on_two("deep").output
    [line] = [one for one in output.splitlines() if "train_step waits for messages" in one]
    assert 12 < int(line.split("latency: ")[1].split(".")[0]) < 24
    assert line.endswith("--batch-statistics local [messages]")
    assert "[messages]" not in on_two("normalized").output
    assert "[messages]" not in on_two("square").output  # none in a turn of its loop


def test_fewer_rows_than_workers_are_told(on_two: RunOnTwo) -> None:
    """They were refused, though ranks without rows compute what one worker does, as at the end of every epoch."""
    output = on_two("one_row").output
    [line] = [one for one in output.splitlines() if one.endswith("[small-batch]")]
    assert "a batch of 1 rows is too small for 2 workers" in line
    assert "[small-batch]" not in on_two("square").output
