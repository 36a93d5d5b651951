"""The guard, driven by its line alone: it acts in a folder of any content, and tells nobody whose guard it is."""

import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from paceline.cluster import environment
from paceline.launcher.workers.guard_line import guarded

pytestmark = pytest.mark.processes


def vanish(job_id: str) -> None:
    """As the guard sees it: its line ends without "bye"."""
    with guarded(job_id):
        words = [word for child in psutil.Process().children() for word in child.cmdline()]
        assert "paceline.launcher.workers.guard" in words
        assert not [word for word in words if job_id in word]
        raise LookupError("the launcher vanishes")


@pytest.mark.timeout(30)
def test_it_ends_the_job_of_a_launcher_that_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `signal.py` in the current directory took the standard library's place, and the guard died unseen."""
    (tmp_path / "signal.py").write_text("raise SystemExit('not the one of the standard library')")
    monkeypatch.chdir(tmp_path)
    job_id = uuid.uuid4().hex[:16]
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    left = subprocess.Popen(sleep, env={environment.JOB_ID: job_id}, cwd="/", start_new_session=True)
    try:
        with pytest.raises(LookupError):
            vanish(job_id)
        assert left.wait(timeout=10) == -9
    finally:
        left.kill()
        left.wait()
