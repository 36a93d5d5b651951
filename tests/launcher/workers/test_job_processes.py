"""Finding every process of a job, however it hides."""

import os
import subprocess
import sys
import time
import uuid

import pytest

from paceline.cluster import environment
from paceline.launcher.workers.teardown import JobProcesses, kill, marked_pids

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]

pytestmark = pytest.mark.processes


JOB_ID = uuid.uuid4().hex


@pytest.fixture
def agent_id():
    return uuid.uuid4().hex


def sleeper(agent_id: str | None) -> "subprocess.Popen[bytes]":
    variables = {name: value for name, value in os.environ.items() if name != environment.AGENT_ID}
    variables[environment.JOB_ID] = JOB_ID  # another agent's processes may be of the same job
    if agent_id is not None:
        variables[environment.AGENT_ID] = agent_id
    return subprocess.Popen(SLEEP, env=variables, start_new_session=True)


def test_marked_processes_are_found_and_others_left_alone(agent_id: str):
    with sleeper(agent_id) as ours, sleeper(agent_id + "0") as similar, sleeper(None) as stranger:
        try:
            assert marked_pids(environment.AGENT_ID, agent_id) == [ours.pid]
            processes = JobProcesses(JOB_ID, agent_id)
            kill(processes.survey())
            assert ours.wait(timeout=60) == -9
            assert processes.survey() == []
            assert similar.poll() is None
            assert stranger.poll() is None
            assert not processes.are_the_last()
        finally:
            similar.kill()
            stranger.kill()
            ours.kill()
    assert processes.are_the_last()


def test_children_are_remembered_when_their_parent_is_gone(agent_id: str):
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess; p = subprocess.Popen({SLEEP!r}, env={{}}, start_new_session=True)\n"
            "print(p.pid, flush=True); p.wait()",
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, environment.AGENT_ID: agent_id},
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        processes = JobProcesses(JOB_ID, agent_id)
        processes.worker_started(parent.pid)
        assert {process.pid for process in processes.survey()} == {parent.pid, child}
        parent.kill()
        parent.wait(timeout=60)
        assert [process.pid for process in processes.survey()] == [child]
        kill(processes.survey())
        give_up_at = time.monotonic() + 60
        while processes.survey() and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert processes.survey() == []


def test_this_process_is_never_of_the_job(monkeypatch: pytest.MonkeyPatch):
    found = marked_pids(environment.AGENT_ID, os.environ.get(environment.AGENT_ID, "none"))
    assert os.getpid() not in found
