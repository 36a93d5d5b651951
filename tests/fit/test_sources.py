"""Data read by the numbers of its rows: N workers compute what one does. The cases are in `sources_jobs.py`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "sources_jobs.py"


def assert_close(some: dict[str, Any], others: dict[str, Any]) -> None:
    assert some.keys() == others.keys()
    for name, values in others.items():
        for one, other in zip(*(v if name == "weights" else [v] for v in (some[name], values)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("case", "size"),
    [
        ("records_with_augmentation_and_class_weights", 2),
        ("rows_repeated_with_steps", 2),
        pytest.param("rows_that_leave_ranks_without_any", 2, marks=pytest.mark.proof),
        ("rows_that_leave_ranks_without_any", 3),
    ],
)
def test_workers_compute_what_one_computes(worlds: Worlds, case: str, size: int) -> None:
    [alone] = worlds.not_launched.run(SCRIPT, case).told
    assert_close(worlds.of(size).run(SCRIPT, case).same, alone)
