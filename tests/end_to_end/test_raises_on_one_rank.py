"""An exception on one rank, inside `fit`, ends the job with its message last; nobody waits for that rank."""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parent / "raises_on_one_rank.py"


@pytest.mark.parametrize(("where", "error"), [("callback", "RuntimeError"), ("pipeline", "ValueError")])
def test_the_job_ends_with_the_error(tmp_path: Path, where: str, error: str) -> None:
    ended = run_workers(2, SCRIPT, where, folder=tmp_path, limit_seconds=90)
    assert ended.code == 1, ended.output
    _, _, report = ended.output.rpartition("paceline: rank 1")
    assert f"{error}: it fails in the {where}" in report
    assert "rank 0" not in report, "the failing rank's report comes last"
