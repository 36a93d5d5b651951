"""The launcher and its guard killed at once, as by a script that kills all processes of a user."""

import os
import signal
from pathlib import Path

import pytest
from tests.launcher.conftest import wait_until

from process_table import SOON_SECONDS

pytestmark = pytest.mark.processes

GUARD = "paceline.launcher.workers.guard"

TRAINS = """
import os, subprocess, sys, time
from pathlib import Path
rank = os.environ["PACELINE_RANK"]
private = Path(os.environ["PACELINE_JOB_DIRECTORY"])
private.mkdir(mode=0o700, exist_ok=True)
(private / rank).touch()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
Path("ready" + rank).write_text(f"{os.getpid()} {private}\\n")
while True:
    time.sleep(0.01)
"""


def _wait_until_gone(paths: list[Path]) -> None:
    assert wait_until(lambda: not any(path.exists() for path in paths)), paths


def _kill_launcher_and_guard(job) -> None:
    [guard] = job.find(GUARD)
    guard.send(signal.SIGSTOP)  # so that it has no moment in which it could act
    job.process.kill()
    job.process.wait(SOON_SECONDS)
    guard.send(signal.SIGKILL)


def test_workers_end_when_their_launcher_and_its_guard_are_gone(paceline_run):
    """Nobody was left to end them, and they trained to their end; one that was stopped stayed for ever."""
    job = paceline_run(TRAINS, "--workers", "2")
    places = [job.wait_for_file(f"ready{rank}").split() for rank in (0, 1)]
    os.kill(int(places[1][0]), signal.SIGSTOP)
    assert len(job.left_over()) >= 6
    _kill_launcher_and_guard(job)
    assert job.is_gone()
    _wait_until_gone([Path(places[0][1])])


def test_a_worker_ends_while_its_main_thread_waits_where_no_signal_is_heard(paceline_run):
    """As in TensorFlow: what Python would do in its main thread is not done before that thread comes back."""
    job = paceline_run(
        """
        import os, signal, threading
        from pathlib import Path
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        Path("ready0").write_text("here\\n")
        threading.Lock().acquire() and threading.Event().wait()
        """,
        "--workers",
        "1",
    )
    job.wait_for_file("ready0")
    _kill_launcher_and_guard(job)
    assert job.is_gone()


def test_a_job_killed_while_mpi_starts_leaves_no_segment(paceline_run):
    """Once all ranks were dead, nothing led from the guard to the file in /dev/shm that they had shared."""
    job = paceline_run(
        """
        import time
        from pathlib import Path
        import paceline
        from paceline.comm import mpi_wiring
        from paceline.comm.world import current_world
        def wait(paths):
            Path(f"ready{paceline.rank()}").write_text(" ".join(sorted(map(str, paths))) + "\\n")
            time.sleep(600)
        mpi_wiring.unlink_segments = wait
        current_world().group.barrier()
        """,
        "--workers",
        "2",
    )
    segments = [Path(path) for rank in (0, 1) for path in job.wait_for_file(f"ready{rank}").split()]
    assert any(path.exists() for path in segments)
    doomed = (job.process.pid, *(one.pid for one in job.find("paceline.bootstrap")))
    assert len(doomed) == 3
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in doomed:
            os.kill(pid, number)
    assert job.is_gone()
    _wait_until_gone(segments)
