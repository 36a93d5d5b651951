"""The buffers of the next epoch are filled early, and nobody but a clock can tell."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "early_epochs_jobs.py"
EARLY = {
    "several_epochs_with_validation": 3,
    "of_unknown_length": 3,
    "several_steps_per_execution": 2,
    "stopped_early_and_fitted_again": 2,
    "stopped_in_the_last_steps_and_fitted_again": 2,
    "broken_off_and_fitted_again": 2,
    "a_callback_reads_the_same_data": 1,
    "a_validation_draws_from_the_same_shuffle": 0,
}
"""Cases, and the epochs whose buffers were filled before they began."""
IN_EVERY_CHECK = ("several_epochs_with_validation", "stopped_early_and_fitted_again", "a_callback_reads_the_same_data")


@pytest.mark.parametrize("case", EARLY)
def test_one_worker_computes_what_plain_keras_does(worlds: Worlds, case: str) -> None:
    [plain] = worlds.plain.run(SCRIPT, case).told
    assert worlds.of(1).run(SCRIPT, case).told == [{"told": plain["told"], "early": EARLY[case]}]


@pytest.mark.parametrize(
    "case", [case if case in IN_EVERY_CHECK else pytest.param(case, marks=pytest.mark.proof) for case in EARLY]
)
def test_two_workers_do_so_too(worlds: Worlds, case: str) -> None:
    [plain] = worlds.plain.run(SCRIPT, case).told
    got = worlds.of(2).run(SCRIPT, case).same
    assert got["early"] == EARLY[case]
    _assert_close(got["told"], plain["told"])


def _assert_close(some: Any, others: Any) -> None:
    if isinstance(others, dict):
        assert some.keys() == others.keys()
        for name, values in others.items():
            _assert_close(some[name], values)
    elif isinstance(others, list):
        assert len(some) == len(others)
        for one, other in zip(some, others, strict=True):
            _assert_close(one, other)
    else:
        np.testing.assert_allclose(some, others, rtol=1e-9, atol=1e-12)
