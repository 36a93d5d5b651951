"""The guard, driven by its line alone: it acts in a folder of any content, and tells nobody whose guard it is."""

import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from paceline.cluster import environment
from paceline.launcher.workers.guard_line import guarded
from paceline.rendezvous.guard_words import WorkerStarted

pytestmark = pytest.mark.processes

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def die(job_id: str, left: list[subprocess.Popen[bytes]]) -> None:
    """As the guard sees it: its line ends without "bye"."""
    with guarded(job_id) as guard:
        left.append(
            subprocess.Popen(SLEEP, env={environment.AGENT_ID: guard.agent_id}, cwd="/", start_new_session=True)
        )
        words = [word for child in psutil.Process().children() for word in child.cmdline()]
        assert "paceline.launcher.workers.guard" in words
        assert not [word for word in words if job_id in word or guard.agent_id in word]
        raise LookupError("the launcher vanishes")


def test_it_ends_the_job_of_a_launcher_that_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `signal.py` in the current directory took the standard library's place, and the guard died unseen."""
    (tmp_path / "signal.py").write_text("raise SystemExit('not the one of the standard library')")
    monkeypatch.chdir(tmp_path)
    job_id = uuid.uuid4().hex[:16]
    left: list[subprocess.Popen[bytes]] = []
    try:
        with pytest.raises(LookupError):
            die(job_id, left)
        assert [process.wait(timeout=60) for process in left] == [-9]
    finally:
        for process in left:
            process.kill()
            process.wait()


def test_after_a_job_that_ended_well_it_kills_nothing() -> None:
    with guarded(uuid.uuid4().hex[:16]) as guard:
        left = subprocess.Popen(SLEEP, env={environment.AGENT_ID: guard.agent_id}, start_new_session=True)
        guard.tell(WorkerStarted(left.pid))
    try:
        assert left.poll() is None, "the guard has ended before this block was left"
    finally:
        left.kill()
        left.wait()
