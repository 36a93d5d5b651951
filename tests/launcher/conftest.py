"""Jobs of plain Python scripts, each under a hard deadline, and a way to see what is left of one."""

import json
import os
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ports import HoldPorts
from process_table import SOON_SECONDS, Seen, end_all, marked, until_gone

LIMIT_SECONDS = 120.0
"""No job of these tests may take longer; a job that does is killed and fails its test."""

_MARK = "PACELINE_TEST_MARK"


def wait_until(condition: Callable[[], bool], limit_seconds: float = LIMIT_SECONDS) -> bool:
    """Whether `condition` came true in time."""
    give_up_at = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.01)
    return True


@dataclass
class Job:
    """A launcher in a process of its own, and its workers."""

    process: "subprocess.Popen[str]"
    mark: str
    folder: Path
    started_at: float = field(default_factory=time.monotonic)

    def finish(self, limit_seconds: float = LIMIT_SECONDS) -> "Finished":
        """Waits for the launcher's end."""
        try:
            stdout, stderr = self.process.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            self.kill_everything()
            stdout, stderr = self.process.communicate(timeout=60)
            pytest.fail(f"the job took more than {limit_seconds} s\n{stdout}\n{stderr}")
        return Finished(self.process.returncode, stdout, stderr, time.monotonic() - self.started_at)

    def wait_for_file(self, name: str) -> str:
        """The content of a file that a worker writes to say how far it is."""
        path = self.folder / name

        def has_come() -> bool:
            return path.exists() and path.read_text().endswith("\n")

        wait_until(lambda: has_come() or self.process.poll() is not None)
        if not has_come():
            self.kill_everything()
            pytest.fail(
                f"{name} never came (code {self.process.poll()})\n{''.join(self.process.communicate(timeout=60))}"
            )
        return path.read_text().strip()

    def left_over(self) -> list[Seen]:
        """The processes that carry this job's mark, the launcher among them."""
        return marked(_MARK, self.mark)

    def find(self, word: str) -> list[Seen]:
        """Those of the processes whose command line has `word`."""
        return [one for one in self.left_over() if any(word in part for part in one.command)]

    def is_gone(self, limit_seconds: float = SOON_SECONDS) -> bool:
        """Whether nothing is left of it, in time."""
        return not until_gone(self.left_over, limit_seconds)

    def kill_everything(self) -> None:
        """For tests that went wrong."""
        self.process.kill()
        end_all(_MARK, self.mark)


@dataclass(frozen=True)
class Finished:
    """How a job ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def told(self) -> list[str]:
        """The launcher's own lines."""
        return [row for row in self.stderr.splitlines() if row.startswith("paceline: ")]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Starts ``begin(*command, variables={…}, stdout=…)`` in the test's folder; ends what is left."""
    jobs: list[Job] = []

    def begin_job(*command: str, variables: dict[str, str] | None = None, stdout: int = subprocess.PIPE) -> Job:
        mark = uuid.uuid4().hex
        inherited = {name: value for name, value in os.environ.items() if name not in ("TF_CONFIG", "NO_COLOR")}
        process = subprocess.Popen(
            command,
            stdout=stdout,
            stderr=subprocess.PIPE if stdout == subprocess.PIPE else stdout,
            text=True,
            cwd=tmp_path,
            env={**inherited, _MARK: mark, **(variables or {})},
            start_new_session=True,
        )
        jobs.append(Job(process, mark, tmp_path))
        return jobs[-1]

    yield begin_job
    for job in jobs:
        job.kill_everything()
        job.process.wait(timeout=60)
        for stream in (job.process.stdout, job.process.stderr):
            if stream is not None:
                stream.close()


def _write(path: Path, script: str) -> None:
    """Writes a script as a whole: a program that was started before may be reading the same file."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(textwrap.dedent(script))
    partial.replace(path)


@pytest.fixture
def start(begin: Callable[..., Job], tmp_path: Path) -> Callable[..., Job]:
    """Starts ``start(script, *arguments, num_workers=2, variables={…}, …)``."""

    def start_job(
        script: str,
        *arguments: str,
        variables: dict[str, str] | None = None,
        stdout: int = subprocess.PIPE,
        **options: object,
    ) -> Job:
        path = tmp_path / "script.py"
        _write(path, script)
        plain_job = str(Path(__file__).with_name("plain_job.py"))
        described = json.dumps({"num_workers": 2, **options})
        return begin(sys.executable, plain_job, described, str(path), *arguments, variables=variables, stdout=stdout)

    return start_job


@pytest.fixture
def paceline_run(begin: Callable[..., Job], tmp_path: Path) -> Callable[..., Job]:
    """Starts ``paceline run *options script.py *arguments`` of a script in the test's folder."""

    def start_job(
        script: str, *options: str, arguments: tuple[str, ...] = (), name: str = "script.py", **more: object
    ) -> Job:
        _write(tmp_path / name, script)
        return begin(sys.executable, "-m", "paceline", "run", *options, name, *arguments, **more)

    return start_job


_FAKE_SSH = """#!/bin/sh
# fake_ssh OPTIONS HOST -- COMMAND: runs the command here, as a shell of another login would.
echo "$@" >> ssh_arguments
while [ "$1" != -- ]; do host=$1; shift; done
shift
case $host in
    fails*) cat ssh_says >&2; exit "$(cat ssh_code)";;
    mute*) exec sleep 600;;
    other*) printf '\\000paceline agent 9.9\\n'; exec sleep 600;;
esac
echo "Welcome to $host. Last login: never."
printf 'no newline and \\000 bytes'
cd /
exec env -i PATH="$PATH" HOME="$HOME" MARK="$MARK" sh -c "$*"
"""


@pytest.fixture
def fake_ssh(tmp_path: Path) -> list[str]:
    """Options with which `paceline run` takes every host but this one for a shell on this machine.

    A host ``fails…`` ends with the code in the file ``ssh_code`` and the words in ``ssh_says``; one
    ``mute…`` never answers, one ``other…`` has another version of Paceline.
    """
    path = tmp_path / "fake_ssh"
    path.write_text(_FAKE_SSH.replace("MARK", _MARK))
    path.chmod(0o755)
    return ["--ssh-command", f"{path} -F 'my config'"]


@pytest.fixture
def free_port(hold_ports: HoldPorts) -> int:
    """A port of this host that nobody listens on, and that nobody else is given."""
    (port,) = hold_ports(1)
    return port


@pytest.fixture
def run(start: Callable[..., Job]) -> Callable[..., Finished]:
    """Starts a job as `start` does and waits for its end, after which nothing may be left of it."""

    def run_job(script: str, *arguments: str, **options: object) -> Finished:
        job = start(script, *arguments, **options)
        finished = job.finish()
        assert job.left_over() == []
        return finished

    return run_job
