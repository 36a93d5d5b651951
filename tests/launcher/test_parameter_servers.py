"""`paceline run --ps`: which processes there are, what the death of each means, and that none is left over."""

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.launcher.conftest import Finished, Job, wait_until

from process_table import Seen

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("asynchronous.py")
LIMIT_SECONDS = 300.0


class Servers:
    """A job with two workers and one parameter server.

    Args:
        begin: Starts a command.
        folder: Where the script looks for files.
        options: Of `paceline run`.
        code: With which the script exits.
    """

    def __init__(self, begin: Callable[..., Job], folder: Path, *options: str, code: int = 0) -> None:
        self.folder = folder
        command = (sys.executable, "-m", "paceline", "run", "--workers", "2", "--ps", "1", *options)
        self.job = begin(*command, str(SCRIPT), str(folder), str(code), variables={"TF_CPP_MIN_LOG_LEVEL": "2"})

    def steps(self) -> tuple[int, int]:
        """The generation, and how many steps have ended in it."""
        path = self.folder / "steps"
        generation, steps = path.read_text().split() if path.exists() else (0, 0)
        return int(generation), int(steps)

    def process(self, task: str) -> Seen | None:
        """The process that is `task` now; None: there is none that has become it."""
        for one in self.job.find("paceline.bootstrap"):
            if one.environment.get("PACELINE_TASK") == task:
                return one
        return None

    def wait_for(self, condition: Callable[[], bool]) -> None:
        wait_until(lambda: condition() or self.job.process.poll() is not None, LIMIT_SECONDS)
        if not condition():
            self.job.kill_everything()
            pytest.fail("".join(self.job.process.communicate(timeout=60)))

    def wait_for_more_steps(self) -> None:
        generation, steps = self.steps()
        self.wait_for(lambda: self.steps() > (generation, steps + 3))

    def kill(self, task: str) -> Seen:
        process = self.process(task)
        assert process is not None
        process.send(signal.SIGKILL)
        return process

    def finish(self) -> Finished:
        finished = self.job.finish(LIMIT_SECONDS)
        assert self.job.is_gone()
        return finished


@pytest.fixture
def servers(begin: Callable[..., Job], tmp_path: Path) -> Callable[..., Servers]:
    return lambda *options, **code: Servers(begin, tmp_path, *options, **code)


@pytest.mark.proof
def test_only_the_chief_runs_the_script_and_servers_serve_it(servers: Callable[..., Servers], tmp_path: Path):
    job = servers("--log-dir", str(tmp_path / "logs"))
    job.wait_for_more_steps()
    for task in ("worker 0", "ps 0"):  # as a scheduler tells all processes of a job, whose last snapshot needs them
        job.process(task).send(signal.SIGTERM)
    job.wait_for_more_steps()
    cores = {task: len(os.sched_getaffinity(job.process(task).pid)) for task in ("worker 0", "worker 1", "ps 0")}
    (tmp_path / "enough").touch()
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    lines = finished.stdout.splitlines()
    num_cores = len(os.sched_getaffinity(0))
    assert lines[0] == f"[   chief] chief 0 runs the script on {num_cores} cores"
    assert cores == {"worker 0": max(1, num_cores // 2), "worker 1": max(1, num_cores // 2), "ps 0": num_cores}
    assert lines[-1] == "[   chief] 0 steps are missing"
    assert all(line.startswith("[   chief] ") for line in lines)
    assert finished.told[1] == f"paceline: beside them on host {os.uname().nodename}: chief, ps 0"
    logs = {path.name for path in (tmp_path / "logs" / "latest").iterdir()}
    assert logs == {"job_0.log", "worker_0.log", "worker_1.log", "ps_0.log"}


@pytest.mark.proof
def test_a_worker_may_die_while_another_is_left(servers: Callable[..., Servers], tmp_path: Path):
    job = servers("--max-restarts", "1", "--hang-timeout", "3")
    job.wait_for_more_steps()
    first = job.process("worker 0")
    first.send(signal.SIGSTOP)
    job.wait_for_more_steps()
    job.wait_for(lambda: (again := job.process("worker 0")) is not None and again.pid != first.pid)
    assert job.process("worker 0").environment["TF_CONFIG"] == first.environment["TF_CONFIG"], "at its own address"
    job.kill("worker 0")
    job.wait_for_more_steps()
    job.kill("worker 1")
    finished = job.finish()
    assert finished.code == 137, finished.stderr
    news = [line for line in finished.told if line.startswith("paceline: worker 0 ")]
    assert news[0] == (
        "paceline: worker 0 was stopped (SIGSTOP, or a debugger) for as long as --hang-timeout; ending it. [hang]"
    )
    assert re.match(r"paceline: worker 0 \(\S+\) was killed by signal 9 \(SIGKILL\)\. \[worker-failed\]", news[1])
    assert news[2] == "paceline: worker 0 is started again; the others go on"
    assert re.match(r"paceline: worker 0 runs again \(pid \d+ on \S+\)", news[3])
    assert news[5].startswith("paceline: worker 0 is not started again, as --max-restarts allows no more restarts; ")
    assert re.match(r"paceline: worker 0 \(\S+\) was killed by signal 9 \(SIGKILL\)\. ", finished.told[-2])
    assert finished.told[-1].startswith("paceline: no restart: 1 restart has been made")


def test_the_death_of_a_server_begins_a_generation_and_a_failing_script_ends_the_job(
    servers: Callable[..., Servers], tmp_path: Path
):
    job = servers("--max-restarts", "1", "--standby", code=7)
    job.wait_for_more_steps()
    # A standby for each of the four processes.
    job.wait_for(lambda: len(job.job.find("paceline.bootstrap")) == 8)
    (tmp_path / "strike.new").write_text("ps 0")
    (tmp_path / "strike.new").rename(tmp_path / "strike")
    job.wait_for(lambda: job.steps() >= (2, 3))
    (tmp_path / "enough").touch()
    finished = job.finish()
    assert finished.code == 7, finished.stderr
    assert "paceline: generation 2 begins" in finished.told
    assert any("ps 0" in line and "--chaos injected this fault: kill:ps 0." in line for line in finished.told)
    # The chief's script fails, too, and on a slow machine before the launcher has seen the server's end.
    assert "failed with exit code" not in finished.stderr.partition("paceline: generation 2 begins")[0]
    assert finished.stdout.splitlines()[-1] == "[   chief] 0 steps are missing"


@pytest.mark.proof
@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("time", range(30))
def test_every_run_ends_with_the_code_of_the_chief(
    servers: Callable[..., Servers], tmp_path: Path, time: int, code: int
):
    (tmp_path / "enough").touch()
    finished = servers(code=code).finish()
    assert finished.code == code, finished.stderr


def end_of(jobs: list[Job], folder: Path) -> list[Finished]:
    """The ends of the launchers of one job, when its script has made some steps."""
    steps = folder / "steps"
    wait_until(lambda: steps.exists() or any(job.process.poll() is not None for job in jobs), LIMIT_SECONDS)
    (folder / "enough").touch()
    finished = [job.finish(LIMIT_SECONDS) for job in jobs]
    assert all(job.is_gone() for job in jobs)
    return finished


@pytest.mark.proof
def test_workers_are_spread_over_nodes(begin: Callable[..., Job], free_port: int, tmp_path: Path):
    command = (sys.executable, "-m", "paceline", "run", "--workers", "1", "--ps", "1")
    place = ("--nnodes", "2", "--rendezvous", f"127.0.0.1:{free_port}", "--start-timeout", "200")
    nodes = [begin(*command, *place, "--node-rank", rank, str(SCRIPT), str(tmp_path), "0") for rank in "01"]
    head, node = end_of(nodes, tmp_path)
    assert (head.code, node.code) == (0, 0), head.stderr + node.stderr
    assert head.stdout.splitlines()[-1].endswith("chief] 0 steps are missing")
    [begins] = [line for line in head.told if line.startswith("paceline: 2 workers on 2 hosts")]
    assert re.search(r"\(\S+: worker 0, \S+: worker 1\); job ", begins)
    assert any("ask for no proof" in line and "docs/security.md" in line for line in head.told)


@pytest.mark.proof
def test_workers_are_spread_over_hosts(begin: Callable[..., Job], fake_ssh: list[str], tmp_path: Path):
    command = (sys.executable, "-m", "paceline", "run", "--hosts", "one:1,two:1", "--ps", "2", *fake_ssh)
    job = begin(*command, "--remote-python", sys.executable, str(SCRIPT), str(tmp_path), "0")
    [finished] = end_of([job], tmp_path)
    assert finished.code == 0, finished.stderr
    assert [line for line in finished.told if "beside them" in line] == [
        f"paceline: beside them on host {os.uname().nodename}: chief, ps 0",
        f"paceline: beside them on host {os.uname().nodename}: ps 1",
    ]


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--ps", "0"), 2, "--ps: received 0; expected a number from 1 on"),
        (("--workers", "0", "--ps", "1"), 2, "--workers"),
        (
            ("--ps", "1", "--hosts", "a:1,b:1", "--require-secret"),
            2,
            "--require-secret (PACELINE_REQUIRE_SECRET): received",
        ),
        (
            (),
            78,
            "but this job was started without --ps. Start it with `paceline run --workers 2 --ps 1`. [no-servers]",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    begin: Callable[..., Job], tmp_path: Path, options: tuple[str, ...], code: int, told: str
):
    finished = begin(sys.executable, "-m", "paceline", "run", *options, str(SCRIPT), str(tmp_path), "0").finish(
        LIMIT_SECONDS
    )
    assert finished.code == code, finished.stderr
    assert told in finished.stderr
