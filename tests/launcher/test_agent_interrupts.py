"""Ctrl-C, SIGTERM, a closed terminal or pipe, and ``kill -9`` of the launcher: nothing is ever left."""

import json
import os
import signal
from pathlib import Path

import pytest
from tests.launcher.conftest import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.processes

STUBBORN = """
import os, signal, subprocess, sys, time
rank = os.environ["PACELINE_RANK"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(["sh", "-c", 'exec "$@" & exec sleep 600', "sh", *sleeper], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
with open("ready" + rank, "w") as file:
    print(os.getpid(), file=file)
time.sleep(600)
"""
"""Ignores SIGTERM and has children in sessions of their own, one of which has a child itself."""

OBEDIENT = """
import os, time
with open("ready" + os.environ["PACELINE_RANK"], "w") as file:
    print(os.getpid(), file=file)
time.sleep(600)
"""


def ready(job) -> None:
    for rank in (0, 1):
        job.wait_for_file(f"ready{rank}")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_job(start, number: signal.Signals, code: int):
    before = signal.signal(number, signal.SIG_DFL if number == signal.SIGHUP else signal.getsignal(number))
    try:
        job = start(OBEDIENT)
    finally:
        signal.signal(number, before)  # `nohup make test` has SIGHUP ignored, which launchers inherit and respect
    ready(job)
    job.process.send_signal(number)
    finished = job.finish()
    assert finished.code == code
    assert job.left_over() == []
    assert finished.stderr.splitlines()[1:] == [
        f"paceline: stopping 2 workers ({number.name})" + ("; Ctrl-C again kills at once" if code == 130 else "")
    ]


def ready_with_all_children(job) -> None:
    ready(job)
    # A child's child may begin after its parents said that they are ready.
    assert wait_until(lambda: len(job.left_over()) >= 9), job.left_over()


def test_ctrl_c_ends_stubborn_workers_and_all_their_children(start):
    job = start(STUBBORN)
    ready_with_all_children(job)
    job.process.send_signal(signal.SIGINT)
    assert job.finish().code == 130
    assert job.left_over() == []


def test_a_second_ctrl_c_kills_at_once(start):
    """The workers have more grace than this test has time."""
    job = start(STUBBORN, grace_seconds=10 * LIMIT_SECONDS)
    ready_with_all_children(job)
    job.process.send_signal(signal.SIGINT)
    assert job.process.stderr is not None
    while "stopping" not in job.process.stderr.readline():
        pass
    assert len(job.find("script.py")) >= 2, "they ignore the first one"
    job.process.send_signal(signal.SIGINT)
    assert job.finish().code == 130
    assert job.left_over() == []


def test_kill_9_of_the_launcher_leaves_nothing(start):
    job = start(STUBBORN)
    ready_with_all_children(job)
    job.process.kill()
    assert job.is_gone()


def test_kill_9_of_the_launcher_removes_segments_that_mpi_had_not_unlinked_yet(start):
    job = start(
        """
        import mmap, os, time
        path = "/dev/shm/mpich_shm_test_" + os.environ["PACELINE_JOB_ID"]
        own = "/dev/shm/script_test_" + os.environ["PACELINE_JOB_ID"]
        for name in (path, own):
            with open(name, "wb") as file:
                file.truncate(4096)
        file = open(path, "r+b")
        memory = mmap.mmap(file.fileno(), 4096)
        with open("ready0", "w") as file:
            print(path, own, file=file)
        time.sleep(600)
        """,
        num_workers=1,
    )
    segment, own = map(Path, job.wait_for_file("ready0").split())
    try:
        job.process.kill()
        assert job.is_gone()
        assert wait_until(lambda: not segment.exists())
        assert own.exists()  # not ours to remove
    finally:
        segment.unlink(missing_ok=True)
        own.unlink(missing_ok=True)


def test_nohup_is_respected(start):
    job = start(
        """
        import os, time
        with open("ready" + os.environ["PACELINE_RANK"], "w") as file:
            print(os.getpid(), file=file)
        while not os.path.exists("go"):
            time.sleep(0.01)
        """,
        ignore_hangup=True,
    )
    ready(job)
    job.process.send_signal(signal.SIGHUP)
    (job.folder / "go").touch()
    assert job.finish().code == 0


def test_a_reader_that_leaves_ends_the_job_as_in_any_pipe(start):
    reading, writing = os.pipe()
    job = start(
        """
        import time
        for i in range(6000):
            print("line", i)
            time.sleep(0.01)
        """,
        stdout=writing,
    )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.readline()
    assert job.process.wait(LIMIT_SECONDS) == 128 + signal.SIGPIPE
    assert job.is_gone()


def test_a_full_disk_behind_the_output_does_not_end_the_job(start):
    """Its error was taken for a reader that had left, and a night of training ended with 141."""
    full = os.open("/dev/full", os.O_WRONLY)
    job = start(
        """
        import os, sys
        for i in range(2000):
            print("line", i)
            print("line", i, file=sys.stderr)
        with open("ready" + os.environ["PACELINE_RANK"], "w") as file:
            print("well", file=file)
        """,
        stdout=full,
    )
    os.close(full)
    assert job.process.wait(timeout=20) == 0
    assert all((job.folder / f"ready{rank}").exists() for rank in (0, 1))


def _guards(job):
    """The processes of `job` that are guards."""
    return [one.pid for one in job.find("paceline.launcher.workers.guard")]


def test_the_guard_is_deaf_to_ctrl_c_and_gone_after_the_job(start):
    job = start(OBEDIENT)
    ready(job)
    [guard] = _guards(job)
    assert os.getsid(guard) == guard
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard, number)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish().code == 143
    assert job.left_over() == []


def test_a_guard_that_was_killed_is_no_reason_to_stop(start):
    job = start(
        """
        import os, time
        with open("ready" + os.environ["PACELINE_RANK"], "w") as file:
            print(os.getpid(), file=file)
        while not os.path.exists("go"):
            time.sleep(0.01)
        """
    )
    ready(job)
    [guard] = _guards(job)
    os.kill(guard, signal.SIGKILL)
    (job.folder / "go").touch()
    assert job.finish().code == 0


def test_stopped_output_is_passed_on_before_the_end(start):
    job = start(
        """
        import os, signal, sys, time
        def leave(*_):
            print("saved before leaving")
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        with open("ready" + os.environ["PACELINE_RANK"], "w") as file:
            print(os.getpid(), file=file)
        time.sleep(600)
        """
    )
    ready(job)
    job.process.send_signal(signal.SIGTERM)
    finished = job.finish()
    assert finished.stdout.count("saved before leaving") == 2
    assert finished.code == 143


def test_workers_inherit_only_their_own_descriptors(run):
    finished = run(
        """
        import json, os
        def is_open(number):
            try:
                os.fstat(number)
            except OSError:
                return False
            return True
        found = [number for number in map(int, os.listdir("/proc/self/fd")) if is_open(number)]
        print(json.dumps([found, [os.environ["PACELINE_AGENT_FD"], os.environ["PACELINE_PMI_FD"]]]))
        """
    )
    rows = finished.stdout.splitlines()
    assert len(rows) == 2
    for row in rows:
        descriptors, sockets = json.loads(row[4:])
        assert set(descriptors) == {0, 1, 2, *map(int, sockets)}
