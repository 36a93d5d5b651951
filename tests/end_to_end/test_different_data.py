"""Ranks that read different data are stopped before they train on."""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = [pytest.mark.processes]


@pytest.mark.proof
def test_the_job_stops_and_names_the_rank_and_the_causes(tmp_path: Path) -> None:
    ended = run_workers(2, Path(__file__).with_name("own_shuffle.py"), folder=tmp_path)
    assert ended.code != 0
    assert "came to its end" not in ended.output
    assert "the ranks read different data" in ended.output
    assert "rank(s) 1" in ended.output
    assert "a shuffle or augmentation in Python or NumPy" in ended.output
    assert "Traceback" not in ended.output, "Paceline's own error explains itself"
