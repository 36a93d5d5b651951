"""`--batch-statistics local`: fewer messages, equal weights on all ranks, and one line that says what differs."""

from pathlib import Path

import numpy as np
import pytest

from programs import run_workers
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("divided")]

SCRIPT = Path(__file__).with_name("batch_statistics_jobs.py")
LINE = "--batch-statistics local: each worker normalizes by its own rows in 3 layers (bn0, bn1, bn2)"


def test_local_statistics_take_no_message_in_the_middle_of_the_step(worlds: Worlds) -> None:
    exact = worlds.of(2).run(SCRIPT, "normalized", "exact")
    local = worlds.of(2).run(SCRIPT, "normalized", "local")
    named = worlds.of(2).run(SCRIPT, "named", "local")
    without = worlds.of(2).run(SCRIPT, "plain", "local")
    assert local.same["messages"] == without.same["messages"] < exact.same["messages"] / 5
    assert named.same["messages"] == local.same["messages"]
    assert local.output.count(LINE) == named.output.count(LINE) == 1
    assert "[batch-statistics]" not in exact.output
    assert not np.allclose(local.same["numbers"], exact.same["numbers"], rtol=1e-4)
    np.testing.assert_allclose(local.same["numbers"][:2], exact.same["numbers"][:2], rtol=0.2)


@pytest.mark.proof
@pytest.mark.parametrize("name", ["plain", "frozen"])
def test_a_model_that_normalizes_by_no_batch_has_one_workers_numbers(worlds: Worlds, name: str) -> None:
    [one] = worlds.plain.run(SCRIPT, name).told
    case = worlds.of(2).run(SCRIPT, name, "local")
    np.testing.assert_allclose(case.same["numbers"], one["numbers"], rtol=1e-4, atol=1e-6)
    assert "[batch-statistics]" not in case.output


def test_the_first_batch_is_verified(worlds: Worlds) -> None:
    """With all rows on one rank, as the numbers depend on who has which."""
    assert "train_step cannot be trusted" in worlds.of(2).run(SCRIPT, "broken", "local").same["raised"]


def test_a_loop_of_the_scripts_own(worlds: Worlds) -> None:
    exact = worlds.of(2).run(SCRIPT, "loop", "exact")
    local = worlds.of(2).run(SCRIPT, "loop", "local")
    assert LINE in local.output
    assert "[batch-statistics]" not in exact.output
    assert not np.allclose(local.same["numbers"], exact.same["numbers"], rtol=1e-4)


@pytest.mark.proof
def test_the_option_reaches_the_workers(tmp_path: Path) -> None:
    run = run_workers(2, "--batch-statistics", "local", "--verify", "strict", SCRIPT, folder=tmp_path)
    assert run.code == 0, run.output
    assert run.output.count(LINE) == 1
    told = [line.partition("numbers ")[2].split(maxsplit=1) for line in run.output.splitlines() if "] numbers" in line]
    assert sorted(rank for rank, _ in told) == ["0", "1"]
    assert told[0][1] == told[1][1], "the weights of the ranks differ"
