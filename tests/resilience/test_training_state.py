"""A loop of the user's own that dies goes on, and ends with the same bits."""

from pathlib import Path

import pytest

from paceline.errors import EXIT_PREEMPTED
from paceline.store.retention import METRICS
from paceline.store.snapshots import SnapshotStore
from programs import run_python, run_workers

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parent / "own_loop.py"


def test_goes_on_after_a_death_and_after_being_told_to_stop(tmp_path: Path) -> None:
    undisturbed = run_python(SCRIPT, tmp_path / "a", folder=tmp_path)
    assert undisturbed.lines("FIRST") == ["FIRST 0"], undisturbed.output
    assert undisturbed.lines("EVENT") == [f"EVENT StepDone {step}" for step in (4, 8, 12, 16, 20)] + [
        "EVENT FitEnded 20"
    ]
    newest = SnapshotStore(tmp_path / "a").newest_intact().found
    assert newest is not None
    assert newest.notes[METRICS] == {"distance": newest.step - 8.0}
    assert run_python(SCRIPT, tmp_path / "b", "10", folder=tmp_path).code == 9
    told = run_python(SCRIPT, tmp_path / "b", "13", "SIGTERM", folder=tmp_path)
    assert told.lines("FIRST") == ["FIRST 8"]
    assert told.code == EXIT_PREEMPTED, told.output
    resumed = run_python(SCRIPT, tmp_path / "b", folder=tmp_path)
    assert resumed.lines("FIRST") == ["FIRST 16"]
    assert resumed.lines("EVENT") == ["EVENT TrainingResumed 16", "EVENT StepDone 20", "EVENT FitEnded 20"]
    assert resumed.lines("END") == undisturbed.lines("END") != []


@pytest.mark.proof
def test_chaos_strikes_a_loop_at_its_save(tmp_path: Path) -> None:
    """Its steps are events, as those of `fit` are."""
    options = ("--chaos", "exception:step=6", "--snapshot-dir", "unused")
    struck = run_workers(1, *options, SCRIPT, tmp_path / "a", folder=tmp_path)
    assert struck.code == 1, struck.output
    assert "RuntimeError: chaos: exception:rank=0,step=6,generation=1" in struck.output
    assert [line.partition("] ")[2] for line in struck.lines("[0] EVENT")] == ["EVENT StepDone 4", "EVENT StepDone 8"]
