"""`paceline status` and `paceline top` as users type them, beside jobs that run."""

import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ports import HoldPorts
from programs import Ended, Program, run_python

pytestmark = pytest.mark.processes

LIMIT_SECONDS = 120
COLUMNS = 80

SLEEPS = """
import os, time
from pathlib import Path
Path("began." + os.environ["PACELINE_RANK"]).touch()
while not Path("end").exists():
    time.sleep(0.05)
"""

NAP_SECONDS = 0.13
"""In a callback of each step of `TRAINS`: most of the step, as the clock must find."""

TRAINS = f"""
import os, subprocess, sys, time
import keras, numpy as np

class Asks(keras.callbacks.Callback):
    async_safe = False

    def on_train_batch_end(self, batch, logs=None):
        time.sleep({NAP_SECONDS})

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and os.environ["PACELINE_RANK"] == "0":
            asked = [sys.executable, "-m", "paceline", "status", os.environ["PACELINE_JOB_ID"], "--json"]
            told = subprocess.run(asked, stdout=subprocess.PIPE, timeout=100, check=True).stdout
            open("told.json", "wb").write(told)

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((80, 4), "float32")
model.fit(x, x[:, :1], batch_size=4, epochs=3, verbose=0, callbacks=[Asks()])
"""


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where jobs have their directories: apart from those of other tests."""
    place = tmp_path / "tmp"
    place.mkdir()
    return place


@contextmanager
def running(folder: Path, temporary: Path, script: str = SLEEPS, *options: str) -> Iterator[Program]:
    """A job of two workers, whose processes run."""
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "paceline", "run", "--workers", "2", *options, "script.py"]
    job = Program(command, folder, {"TMPDIR": str(temporary)})
    try:
        until(lambda: all((folder / f"began.{rank}").exists() for rank in range(2)), job)
        yield job
    finally:
        job.kill()
        job.close()


def until(condition: Callable[[], bool], job: Program) -> None:
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, job.output()
        assert job.process.poll() is None, job.output()
        time.sleep(0.02)


def typed(temporary: Path, *words: str, **variables: str) -> Ended:
    return run_python(
        "-m", "paceline", *words, folder=temporary, limit_seconds=LIMIT_SECONDS, variables=at(temporary, **variables)
    )


def at(temporary: Path, **variables: str) -> dict[str, str]:
    return {"TMPDIR": str(temporary), "COLUMNS": str(COLUMNS), **variables}


def job_in(temporary: Path) -> str:
    (directory,) = temporary.glob("paceline-*")
    return directory.name.removeprefix("paceline-")


def test_a_job_that_runs_and_then_does_not(tmp_path: Path, temporary: Path, hold_ports: HoldPorts) -> None:
    (port,) = hold_ports(1)
    with running(tmp_path, temporary, SLEEPS, "--metrics-port", str(port)) as job:
        job_id = job_in(temporary)
        found = (temporary / f"paceline-{job_id}" / "status").lstat()
        assert (stat.S_ISSOCK(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o600)

        shown = typed(temporary, "status")
        assert shown.code == 0, shown.output
        lines = shown.output.splitlines()
        assert max(map(len, lines)) <= COLUMNS
        assert "\033" not in shown.output
        assert lines[0].startswith(f"job {job_id}  running, for ")
        assert re.fullmatch(r"  worker 1 +1 +\S+ +\d+ +running +-", lines[-1])

        (of_all,) = json.loads(typed(temporary, "status", "--json").output)
        by_name = json.loads(typed(temporary, "status", job_id[:6], "--json").output)
        assert of_all["job_id"] == by_name["job_id"] == job_id
        assert [one["rank"] for one in by_name["workers"]] == [0, 1]
        assert by_name["pid"] == job.process.pid

        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=LIMIT_SECONDS) as answer:
            assert f'paceline_job{{job="{job_id}",state="running"}} 1.0' in answer.read().decode()

        (tmp_path / "end").touch()
        assert job.ended(LIMIT_SECONDS).code == 0
    assert list(temporary.glob("paceline-*")) == []
    assert typed(temporary, "status").output.startswith("no job of yours runs on this host")
    assert json.loads(typed(temporary, "status", "--json").output) == []


def test_two_jobs_and_one_that_is_none(tmp_path: Path, temporary: Path) -> None:
    with running(tmp_path / "a", temporary), running(tmp_path / "b", temporary):
        listed = typed(temporary, "status").output.splitlines()
        assert listed[0].split() == ["job", "state", "for", "ranks", "step", "program"]
        jobs = {line.split()[0] for line in listed[1:]}
        assert jobs == {path.name.removeprefix("paceline-") for path in temporary.glob("paceline-*")}
        assert len(jobs) == 2
        assert len(json.loads(typed(temporary, "status", "--json").output)) == 2
        several = typed(temporary, "top")
        assert several.code == 1
        assert "2 jobs of yours run on this host. Fix: name one of them: " in several.output
    for words, told in (
        (("status", "nothing"), "no job nothing of yours runs on this host. Fix: "),
        (("top", "nothing"), "no job nothing of yours runs on this host. Fix: "),
        (("status", str(tmp_path)), "is not the directory of a job that runs. Fix: "),
        (("top",), "no job of yours runs on this host"),
    ):
        refused = typed(temporary, *words)
        assert refused.code == 1
        (line,) = refused.output.splitlines()
        assert told in line
        assert line.endswith("[no-job]")


def test_top_ends_with_ctrl_c_and_the_job_goes_on(tmp_path: Path, temporary: Path) -> None:
    with running(tmp_path, temporary) as job:
        top = Program([sys.executable, "-m", "paceline", "top"], tmp_path, at(temporary, PYTHONUNBUFFERED="1"))
        until(lambda: top.output().count("\n") >= 2, top)
        os.kill(top.process.pid, signal.SIGINT)
        ended = top.ended(LIMIT_SECONDS)
        assert ended.code == 0, ended.output
        assert all(re.fullmatch(r"\d+ m?i?n? ?\d* ?s: running, 2 ranks", line) for line in ended.output.splitlines())

        last = Program([sys.executable, "-m", "paceline", "top", job_in(temporary)], tmp_path, at(temporary))
        until(lambda: "running" in last.output(), last)
        assert job.process.poll() is None
        (tmp_path / "end").touch()
        assert job.ended(LIMIT_SECONDS).code == 0
        ended = last.ended(LIMIT_SECONDS)
        assert ended.code == 0
        assert re.fullmatch(r"job \w+ is over", ended.output.splitlines()[-1])


def test_top_on_a_terminal_is_status_again_and_again(tmp_path: Path, temporary: Path) -> None:
    with running(tmp_path, temporary):
        terminal, end = os.openpty()
        variables = {**os.environ, **at(temporary, TERM="xterm-256color")}
        command = [sys.executable, "-m", "paceline", "top"]
        with subprocess.Popen(command, stdout=end, stderr=end, env=variables) as top:
            os.close(end)
            shown = b""
            try:
                give_up_at = time.monotonic() + LIMIT_SECONDS
                while shown.count(b"running, for ") < 2:
                    assert time.monotonic() < give_up_at, shown
                    if select.select([terminal], [], [], 1)[0]:
                        shown += os.read(terminal, 1 << 16)
                top.send_signal(signal.SIGINT)
                assert top.wait(LIMIT_SECONDS) == 0
            finally:
                top.kill()
                os.close(terminal)
        assert b"\x1b[1A" in shown, "the lines are drawn over the earlier ones"
        assert shown.count(b"worker 1") >= 2


def test_a_failed_worker_is_seen_after_the_restart(tmp_path: Path, temporary: Path) -> None:
    once = 'if os.environ["PACELINE_GENERATION"] == "1" and os.environ["PACELINE_RANK"] == "1": sys.exit(3)\n'
    script = f"import os, sys\n{once}{SLEEPS}"
    with running(tmp_path, temporary, script, "--max-restarts", "1") as job:
        until(lambda: "restarts  1 of 1; the last one: rank 1 " in typed(temporary, "status").output, job)


def test_status_loads_no_large_package(temporary: Path) -> None:
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom paceline.cli.verbs import app\n"
        "result = CliRunner().invoke(app, ['status'])\nassert result.exit_code == 0, result.output\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'mpi4py', 'rich', 'asyncio'} & set(sys.modules)))\n"
    )
    ended = run_python("-c", program, folder=temporary, limit_seconds=LIMIT_SECONDS, variables=at(temporary))
    assert ended.output == "[]\n"


def test_what_a_fit_does(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "script.py").write_text(TRAINS)
    options = ("--workers", "2", "--snapshot-dir", "snapshots", "--snapshot-every", "10", "--events", "events.jsonl")
    command = [sys.executable, "-m", "paceline", "run", *options, "script.py"]
    ended = Program(command, tmp_path, {"TMPDIR": str(temporary)}).ended()
    assert ended.code == 0, ended.output
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["state"], told["epoch"]) == ("training", 1), "the epoch that begins is told behind its callbacks"
    assert told["step"] == 40
    assert told["steps_per_second"] > 0
    assert told["epoch_ended"]["epoch"] == 1
    assert "loss" in told["epoch_ended"]["logs"]
    assert told["num_snapshots"] > 0
    assert [one["state"] for one in told["workers"]] == ["training", "training"]
    times = told["step_times"]
    assert times["shares"]["callbacks"] * times["step_seconds"] > 0.9 * NAP_SECONDS
    assert times["text"].startswith("step ")
    account = told["account"]
    assert account["seconds"] == pytest.approx(told["seconds"], abs=1)
    assert sum(account["parts"].values()) == pytest.approx(account["seconds"])
    assert {"start", "tracing", "callbacks"} <= account["parts"].keys()

    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    times = [event for event in events if event["event"] == "StepsTimed"]
    assert [event["is_whole_fit"] for event in times] == [False] * 3 + [True], "one an epoch, and one in the end"
    assert {event["rank"] for event in times} == {0}
    for event in times:
        assert sum(event["shares"].values()) == pytest.approx(1, abs=0.1)
    spent = [event for event in events if event["event"] == "TimeSpent"]
    [began] = [event["time"] for event in events if event["event"] == "FitBegan" and event["rank"] == 0]
    assert sum(spent[-1]["seconds"].values()) == pytest.approx(spent[-1]["time"] - began, rel=0.05)
