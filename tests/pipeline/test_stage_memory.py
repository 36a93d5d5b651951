"""A worker holds its stage only: weights, slots, and the gradients that it adds up."""

from pathlib import Path

import pytest

from programs import run_python, run_workers

pytestmark = [pytest.mark.processes, pytest.mark.proof, pytest.mark.timeout(900)]

_SCRIPT = Path(__file__).with_name("memory_job.py")
_MOST = 0.65


def _megabytes(output: str) -> list[int]:
    return [int(line.split()[-2]) for line in output.splitlines() if "above idle: " in line]


def test_two_stages_hold_little_more_than_half_of_a_model_each(tmp_path: Path) -> None:
    [whole] = _megabytes(run_python(_SCRIPT, folder=tmp_path).output)
    stages = _megabytes(run_workers(2, _SCRIPT, folder=tmp_path).output)
    assert whole > 1500
    assert len(stages) == 2
    assert max(stages) / whole < _MOST, (stages, whole)
