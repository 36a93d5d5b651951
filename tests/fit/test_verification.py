"""What the divided step computes is compared with one worker's on the first batch, which is then trained with."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verification_jobs import FAULTS

from parity_runs import RELATIVE_FLOAT64
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("divided")]

SCRIPT = Path(__file__).with_name("verification_jobs.py")


def _equal(several: dict[str, Any], one: dict[str, Any]) -> None:
    np.testing.assert_allclose(several["numbers"], one["numbers"], rtol=RELATIVE_FLOAT64, atol=1e-12)
    assert several["iterations"] == one["iterations"]


@pytest.mark.parametrize(
    "options",
    [
        ("again",),
        pytest.param(("several",), marks=pytest.mark.proof),
        pytest.param(("named",), marks=pytest.mark.proof),
        pytest.param(("noise",), marks=pytest.mark.proof),
        ("few",),
        pytest.param(("counted",), marks=pytest.mark.proof),
        pytest.param(("off",), marks=pytest.mark.proof),
    ],
)
def test_a_step_that_is_divided_rightly_trains_without_a_word(worlds: Worlds, options: tuple[str, ...]) -> None:
    """No batch is lost or taken twice, and variables, seeds and kernels are as they were."""
    [one] = worlds.plain.run(SCRIPT, "right", *options).told
    case = worlds.of(2).run(SCRIPT, "right", *options)
    for several in case.told:
        _equal(several, one)
    assert "[verify]" not in case.output
    assert "[whole-steps]" not in case.output


@pytest.mark.proof
def test_gradients_that_are_only_rounding_are_no_difference(worlds: Worlds) -> None:
    """Those of what is in front of a normalization of equal rows, which an optimizer divides by their size."""
    case = worlds.of(2).run(SCRIPT, "right", "flat", "strict")
    assert [told["raised"] for told in case.told] == ["", ""]


@pytest.mark.parametrize("fault", [FAULTS[0], *(pytest.param(fault, marks=pytest.mark.proof) for fault in FAULTS[1:])])
def test_a_step_that_is_divided_wrongly_is_computed_whole(worlds: Worlds, fault: str) -> None:
    [one] = worlds.plain.run(SCRIPT, "right", "again", "running").told
    case = worlds.of(2).run(SCRIPT, fault, "again", "running")
    for several in case.told:
        _equal(several, one)
    [line, *_] = [line for line in case.output.splitlines() if "train_step" in line]
    assert "every worker computes all rows of train_step" in line
    assert " in place of " in line
    assert "on 7 rows of the first batch" in line
    assert case.output.count("every worker computes all rows of train_step") == 2, "of the data, and of single batches"


def test_strict_ends_the_job_before_its_first_step(worlds: Worlds) -> None:
    for told in worlds.of(2).run(SCRIPT, FAULTS[0], "strict").told:
        assert "train_step cannot be trusted" in told["raised"]
        assert told["raised"].endswith("[verify]")
        assert told["iterations"] == 0


@pytest.mark.proof
def test_off_compares_nothing(worlds: Worlds) -> None:
    [one] = worlds.plain.run(SCRIPT, "right").told
    case = worlds.of(2).run(SCRIPT, FAULTS[2], "off")
    assert "train_step" not in case.output
    assert abs(case.told[0]["numbers"][0] - one["numbers"][0]) > 1e-3
