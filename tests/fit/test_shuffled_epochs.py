"""Shuffles that draw anew in each epoch, where a `fit` ends early or others draw from them in between."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "shuffled_epochs_jobs.py"
CASES = (
    "several_epochs_with_validation",
    "of_unknown_length",
    "several_steps_per_execution",
    "stopped_early_and_fitted_again",
    "stopped_in_the_last_steps_and_fitted_again",
    "broken_off_and_fitted_again",
    "a_callback_reads_the_same_data",
    "a_validation_draws_from_the_same_shuffle",
)
IN_EVERY_CHECK = ("stopped_early_and_fitted_again",)


@pytest.mark.proof
@pytest.mark.parametrize("case", CASES)
def test_one_worker_computes_what_plain_keras_does(worlds: Worlds, case: str) -> None:
    assert worlds.of(1).run(SCRIPT, case).told == worlds.plain.run(SCRIPT, case).told


@pytest.mark.parametrize(
    "case", [case if case in IN_EVERY_CHECK else pytest.param(case, marks=pytest.mark.proof) for case in CASES]
)
def test_two_workers_do_so_too(worlds: Worlds, case: str) -> None:
    [plain] = worlds.plain.run(SCRIPT, case).told
    _assert_close(worlds.of(2).run(SCRIPT, case).same, plain)


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
