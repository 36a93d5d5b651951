"""A loop of the user's own that dies goes on, and ends with the same bits."""

from pathlib import Path

import pytest

from paceline.errors import EXIT_PREEMPTED
from programs import run_python

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).parent / "own_loop.py"


def test_goes_on_after_a_death_and_after_being_told_to_stop(tmp_path: Path) -> None:
    undisturbed = run_python(SCRIPT, tmp_path / "a", folder=tmp_path)
    assert undisturbed.lines("FIRST") == ["FIRST 0"], undisturbed.output
    assert run_python(SCRIPT, tmp_path / "b", "10", folder=tmp_path).code == 9
    told = run_python(SCRIPT, tmp_path / "b", "13", "SIGTERM", folder=tmp_path)
    assert told.lines("FIRST") == ["FIRST 8"]
    assert told.code == EXIT_PREEMPTED, told.output
    resumed = run_python(SCRIPT, tmp_path / "b", folder=tmp_path)
    assert resumed.lines("FIRST") == ["FIRST 16"]
    assert resumed.lines("END") == undisturbed.lines("END") != []
