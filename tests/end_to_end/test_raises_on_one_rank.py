"""An exception on one rank, inside `fit`, ends the job with its message last; nobody waits for that rank."""

import socket
from pathlib import Path

import pytest

from paceline.observe.frames import PACELINE
from programs import run_workers

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parent / "raises_on_one_rank.py"


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("callback", "RuntimeError"),
        pytest.param("callback unfiltered", "RuntimeError", marks=pytest.mark.proof),
        pytest.param("pipeline", "ValueError", marks=pytest.mark.proof),
        pytest.param("pipeline unfiltered", "ValueError", marks=pytest.mark.proof),
    ],
)
def test_the_job_ends_with_the_error(tmp_path: Path, where: str, error: str) -> None:
    """Of 30 lines of traceback 22 were Paceline's and Keras's, and the rank stood above all of them.

    Paceline's frames are those of the package's folder: a checkout's is called paceline, too.
    """
    ended = run_workers(2, SCRIPT, *where.split(), folder=tmp_path)
    assert ended.code == 1, ended.output
    place = where.split()[0]
    _, _, report = ended.output.rpartition(f"paceline: rank 1 ({socket.gethostname()}) failed with exit code 1:\n")
    assert f"{error}: it fails in the {place}" in report
    assert "rank 0" not in report, "the failing rank's report comes last"
    last = report.splitlines()[-1]
    assert last.startswith(f"paceline: rank 1 ({socket.gethostname()}): ")
    assert f"it fails in the {place}" in last
    frames = [line for line in report.splitlines() if line.startswith('  File "')]
    hidden = [line for line in frames if PACELINE in line or "/keras/src/" in line]
    assert len(frames) > len(hidden), "the script's own are there"
    assert bool(hidden) == ("unfiltered" in where), report
    if place == "callback":
        seen = ended.lines("[1] seen by the script: ")
        assert seen, ended.output
        assert any(PACELINE in line for line in seen) == ("unfiltered" in where), ended.output


@pytest.mark.proof
def test_the_last_line_has_the_cause_of_an_error_of_tensorflow(tmp_path: Path) -> None:
    """It was cut before the cause, within ``Graph execution error: Detected at node …``."""
    ended = run_workers(2, SCRIPT, "map", folder=tmp_path)
    assert ended.code == 1, ended.output
    last = ended.output.splitlines()[-1]
    assert last.startswith(f"paceline: rank 1 ({socket.gethostname()}): ")
    assert "InvalidArgumentError: in a function of the data: assertion failed: [it fails in the map]" in last
