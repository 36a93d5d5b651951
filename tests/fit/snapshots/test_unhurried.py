"""What takes its time for a reason is not taken for a hang."""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("unhurried.py")
TIMEOUT_SECONDS, PAUSE_SECONDS = 8.0, 9.0


@pytest.mark.parametrize(
    "options", [pytest.param((), marks=pytest.mark.proof), ("--snapshot-dir", "snapshots")], ids=["watched", "kept"]
)
def test_traces_nested_fits_and_what_follows_a_fit_are_not_missed_steps(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    ended = run_workers(
        2,
        *("--hang-timeout", str(TIMEOUT_SECONDS), *options),
        *(SCRIPT, str(PAUSE_SECONDS)),
        folder=tmp_path,
    )
    assert ended.code == 0, ended.output
    assert sum("unhurried to the end" in line for line in ended.output.splitlines()) == 2
    assert "no step for" not in ended.output
