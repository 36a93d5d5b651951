"""``--shares auto``: N workers compute what one does while shares change, and agree on the rows of each batch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from programs import Ended, run_python, run_workers
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

LIMIT_SECONDS = 240.0
KILLED = Path(__file__).parent / "auto_shares_killed.py"
SCRIPT = Path(__file__).parent / "auto_shares_jobs.py"
CASES = (
    "arrays",
    "whole_batches",
    "maps_before_and_behind_the_batch",
    "maps_of_batches_of_one_size",
    "steps_over_epochs_of_one_iterator",
    "a_layer_with_a_state_for_each_row",
    "short_epochs",
    "items",
    "generator",
    "rows_by_index",
)
IN_EVERY_CHECK = ("arrays", "items")

BY_PACELINE = ("rows_by_index",)
"""Which plain Keras does not know."""


@pytest.mark.parametrize(
    "case", [case if case in IN_EVERY_CHECK else pytest.param(case, marks=pytest.mark.proof) for case in CASES]
)
def test_changing_shares_change_no_number(worlds: Worlds, case: str) -> None:
    alone = worlds.not_launched if case in BY_PACELINE else worlds.plain
    [one], several = alone.run(SCRIPT, case).told, worlds.of(2, shares="auto").run(SCRIPT, case).told
    rows = several[0]["rows"]
    assert len({tuple(each) for each in rows}) > 3, "shares have not changed"
    assert all(other == several[0] for other in several)
    for name in one.keys() - {"rows"}:
        ours, theirs = (np.concatenate([np.ravel(part) for part in each[name]]) for each in (several[0], one))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_slow_worker_gets_fewer_rows_and_the_chief_says_so(worlds: Worlds) -> None:
    case = worlds.of(2, shares="auto").run(SCRIPT, "clocks_of_a_slow_worker")
    assert case.same == {"rows": [8, 4]}
    assert "rank 1 gets 4 of 12 rows from batch " in case.output
    assert "it computes 2.0 times as long per row; --shares 8,4 would keep these shares [shares]" in case.output


@pytest.mark.proof
@pytest.mark.slow
def test_a_run_goes_on_from_a_snapshot_with_its_shares_or_with_others(tmp_path: Path) -> None:
    def weights_of(ended: Ended) -> list[float]:
        assert ended.code == 0, ended.output
        lines = {line.partition("END ")[2] for line in ended.output.splitlines() if "END " in line}
        assert len(lines) == 1, ended.output
        weights: list[float] = json.loads(lines.pop())
        return weights

    variables = {"PYTHONPATH": str(KILLED.parent.parent)}
    alone = weights_of(run_python(KILLED, "-1", folder=tmp_path, limit_seconds=LIMIT_SECONDS, variables=variables))
    snapshots = ("--snapshot-dir", "snapshots", "--snapshot-every", "2", "--seed", "7")
    for shares, step in (("auto", 17), ("auto", 33), ("1,3", 39), ("auto", -1)):
        options = (*snapshots, "--shares", shares, KILLED, str(step))
        limits: Any = {"folder": tmp_path, "limit_seconds": LIMIT_SECONDS}
        ended = run_workers(2, *options, **limits, variables=variables)
        assert ("resuming from the snapshot of step" in ended.output) == (step != 17), ended.output
        assert step < 0 or ended.code != 0
    np.testing.assert_allclose(weights_of(ended), alone, rtol=1e-9, atol=1e-12)
