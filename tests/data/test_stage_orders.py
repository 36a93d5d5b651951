"""Stages that a script lets give their rows in any order keep the order, where several ranks read the same rows."""

from pathlib import Path

import pytest
import tensorflow as tf

from paceline.data.own_rows.own_rows import Division, in_order
from paceline.data.own_rows.stages import division_of
from worlds import Worlds

SCRIPT = Path(__file__).parent / "order_jobs.py"


@pytest.mark.processes
@pytest.mark.timeout(900)
def test_order_is_made_deterministic_and_said(worlds: Worlds) -> None:
    """The attribute of a stage overrides the options of the dataset, so ranks read batches of other rows."""
    done = worlds.of(2).run(SCRIPT, "")
    rows = [0, 1, 2, 3]
    assert done.same == dict.fromkeys(("map", "inside", "interleave", "sloppy"), rows) | {"options": [0, 2]}
    for kind in ("map", "interleave"):
        line, *_ = [
            line for line in done.output.splitlines() if f"`{kind}` with deterministic=False (order_jobs" in line
        ]
        assert "was made deterministic, because all ranks must read the same rows in the same order" in line
    assert "a dataset whose options say deterministic=False: the order of its rows" in done.output


def test_such_a_map_runs_for_own_rows() -> None:
    dataset = tf.data.Dataset.range(8).map(lambda row: row + 1, num_parallel_calls=2, deterministic=False).batch(4)
    assert isinstance(division_of(dataset), Division)
    assert in_order({"deterministic": False, "num_parallel_calls": 2})["deterministic"]
