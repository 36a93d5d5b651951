"""Loops of a user's own, written for one worker: several workers print its numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_loop_jobs import CASES, WHOLE

from parity_runs import RELATIVE_FLOAT64
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("divided")]

SCRIPT = Path(__file__).with_name("own_loop_jobs.py")


IN_EVERY_CHECK = ("guide", "method", "own_updates", "eager")
"""A guide's loop, a step that is a method, updates without an optimizer, a loop that all ranks compute."""


def _cases() -> list[Any]:
    proof = pytest.mark.proof
    return [
        *(pytest.param(case, 2, marks=() if case in IN_EVERY_CHECK else proof) for case in CASES),
        *(pytest.param(case, 3, marks=proof) for case in CASES),
    ]


@pytest.mark.parametrize(("case", "size"), _cases())
def test_a_loop_trains_as_on_one_worker(worlds: Worlds, case: str, size: int) -> None:
    [one] = worlds.plain.run(SCRIPT, case).told
    ended = worlds.of(size).run(SCRIPT, case)
    np.testing.assert_allclose(ended.same, one, rtol=RELATIVE_FLOAT64, atol=1e-12)
    assert case in WHOLE or "whole-steps" not in ended.output
