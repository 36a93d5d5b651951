"""A `fit` that had finished, in a script that is run again with other arguments."""

from pathlib import Path

import pytest

from programs import run_workers

JOB = Path(__file__).with_name("finished_job.py")


@pytest.mark.proof
@pytest.mark.processes
def test_more_epochs_are_not_trained_and_that_is_said(tmp_path: Path) -> None:
    options = ("--snapshot-dir", tmp_path / "snapshots", JOB)
    assert run_workers(1, *options, "1", folder=tmp_path).lines("[0] epochs ") == ["[0] epochs [0]"]
    again = run_workers(1, *options, "3", folder=tmp_path)
    assert again.lines("[0] epochs ") == ["[0] epochs [0]"]
    assert "the script now has epochs=3, but call 1 of fit finished with epochs=1" in again.output
