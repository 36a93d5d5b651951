"""Whole jobs that end well, with plain Python scripts as workers."""

import asyncio
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.errors import ConfigurationError
from paceline.launcher import running
from paceline.launcher.head import Head
from paceline.launcher.hosts.gathering import Gathering, Member
from paceline.launcher.job import JobDescription
from paceline.launcher.workers import local_crew

pytestmark = pytest.mark.processes


def ranks_of(text: str) -> dict[int, list[str]]:
    rows: dict[int, list[str]] = {}
    for row in text.splitlines():
        match = re.fullmatch(r"\[ *(\d+)\] (.*)", row)
        assert match, f"a line without its rank: {row!r}"
        rows.setdefault(int(match[1]), []).append(match[2])
    return rows


def test_every_line_has_its_rank_and_its_stream(run):
    finished = run(
        """
        import os, sys
        print("out of", os.environ["PACELINE_RANK"])
        print("err of", os.environ["PACELINE_RANK"], file=sys.stderr)
        """,
        num_workers=3,
    )
    assert finished.code == 0
    assert ranks_of(finished.stdout) == {rank: [f"out of {rank}"] for rank in range(3)}
    stderr = "\n".join(row for row in finished.stderr.splitlines() if not row.startswith("paceline:"))
    assert ranks_of(stderr) == {rank: [f"err of {rank}"] for rank in range(3)}
    assert re.fullmatch(r"paceline: 3 workers on this host, .*; job [0-9a-f]{16}", finished.told[0])
    assert len(finished.told) == 1


def test_what_a_worker_is_told(run):
    finished = run("import json, os; print(json.dumps(dict(os.environ)))", seed=11, variables={"RANK": "7"})
    workers = {rank: json.loads(rows[0]) for rank, rows in ranks_of(finished.stdout).items()}
    assert sorted(workers) == [0, 1]
    configs = [json.loads(workers[rank]["TF_CONFIG"]) for rank in (0, 1)]
    assert configs[0]["cluster"] == configs[1]["cluster"]
    assert len(set(configs[0]["cluster"]["worker"])) == 2
    for rank, variables in workers.items():
        assert configs[rank]["task"] == {"type": "worker", "index": rank}
        assert variables["PACELINE_RANK"] == variables["PACELINE_LOCAL_RANK"] == str(rank)
        assert variables["PACELINE_WORLD_SIZE"] == "2"
        assert variables["PACELINE_GENERATION"] == "1"
        # Readers of data that find them keep a share; also those of another launcher, in which this one runs.
        assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"} & variables.keys()
        assert variables["PACELINE_SEED"] == "11"
        assert set(map(int, variables["PACELINE_CPUS"].split(","))) <= os.sched_getaffinity(0)
    assert workers[0]["PACELINE_JOB_ID"] == workers[1]["PACELINE_JOB_ID"]


def test_arguments_belong_to_the_script(run):
    finished = run("import sys; print(sys.argv[1:])", "--help", "-n", "7", "--", "a b", num_workers=1)
    assert finished.stdout == "[0] ['--help', '-n', '7', '--', 'a b']\n"


def test_stdin_of_several_workers_is_empty(run):
    finished = run("import os, sys; print(os.environ['PACELINE_RANK'], repr(sys.stdin.read()))")
    assert sorted(finished.stdout.splitlines()) == ["[0] 0 ''", "[1] 1 ''"]


def test_each_worker_leads_its_own_session(run):
    finished = run("import os; print(os.environ['PACELINE_RANK'], os.getsid(0) == os.getpid())")
    assert sorted(finished.stdout.splitlines()) == ["[0] 0 True", "[1] 1 True"]


def test_log_files_keep_both_streams_without_prefix(run, tmp_path: Path):
    logs = tmp_path / "deep" / "logs"
    finished = run(
        r"""
        import os, sys
        sys.stdout.write("10%\r20%\r100%\n" "no newline at the end from " + os.environ["PACELINE_RANK"])
        sys.stdout.flush()
        print("\x1b[31mred\x1b[0m", file=sys.stderr)
        """,
        log_dir=str(logs),
    )
    assert finished.code == 0
    for rank in (0, 1):
        rows = (logs / "latest" / f"job_{rank}.log").read_text().splitlines()
        assert rows[0] == finished.told[0]
        assert sorted(rows[1:]) == ["100%", f"no newline at the end from {rank}", "red"]


def test_each_job_and_generation_keeps_its_own_log_files(run, tmp_path: Path):
    """A rerun emptied the files of the run that had failed, and they had neither its traceback nor why it ended."""
    failing = """
        import json, os, sys, time
        rank, generation = (int(os.environ[f"PACELINE_{name}"]) for name in ("RANK", "GENERATION"))
        print(f"rank {rank} of generation {generation}", flush=True)
        if rank == 1:
            failed = {"type": "Failed", "exception": "E", "traceback": f"File x\\nE: {generation}", "exit_code": 3}
            os.write(int(os.environ["PACELINE_AGENT_FD"]), json.dumps(failed).encode() + b"\\n")
            os._exit(3)
        time.sleep(600)
        """
    logs = tmp_path / "logs"
    finished = run(failing, log_dir=str(logs), max_restarts=1)
    assert finished.code == 3
    [job] = [path for path in logs.iterdir() if not path.is_symlink()]
    assert job.name == finished.told[0].rpartition("job ")[2]
    assert (logs / "latest").resolve() == job / "generation-2"
    for generation in (1, 2):
        text = (job / f"generation-{generation}" / "job_1.log").read_text()
        assert f"rank 1 of generation {generation}\n" in text
        assert f"failed with exit code 3:\nFile x\nE: {generation}\n" in text
        other = (job / f"generation-{generation}" / "job_0.log").read_text()
        assert "paceline: rank 0 was stopped because rank 1 failed\n" in other
    assert "generation 2 begins" in (job / "generation-1" / "job_1.log").read_text()
    before = {path: path.read_bytes() for path in job.rglob("*.log")}
    assert run("print('well')", log_dir=str(logs)).code == 0
    assert (logs / "latest" / "job_1.log").read_text().endswith("well\n")
    assert {path: path.read_bytes() for path in job.rglob("*.log")} == before
    assert len(before) == 4


def test_a_job_that_trained_ends_with_one_line_of_what_it_did(run):
    """It ended without a word, and nobody knew how fast it had been."""
    finished = run(
        """
        import json, os
        for step in (1, 11, 21):
            told = {"type": "StepDone", "rank": 0, "step": step, "epoch": 0}
            os.write(int(os.environ["PACELINE_AGENT_FD"]), json.dumps(told).encode() + b"\\n")
        """
    )
    assert finished.code == 0
    both_clocks = r"paceline: 21 steps, \S+ a second; \d+\.\d s in all, \d+\.\d s of it to start"
    assert re.fullmatch(both_clocks, finished.stderr.splitlines()[-1])
    assert len(finished.told) == 2


def test_a_flood_of_output_is_complete_and_in_order(run):
    finished = run("import os\nfor i in range(20000): print(i, os.environ['PACELINE_RANK'] * 20)")
    rows = ranks_of(finished.stdout)
    for rank in (0, 1):
        assert rows[rank] == [f"{i} {str(rank) * 20}" for i in range(20000)]


def test_what_a_script_leaves_in_the_background_is_ended(run):
    finished = run(
        """
        import subprocess, sys
        # It holds the worker's stdout open, too: nobody may wait for that.
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        """
    )
    assert finished.code == 0


def test_pmi_connects_the_ranks(run):
    """The conversation that MPICH has in `MPI_Init`, by hand: size, rank, a key for the others, a barrier."""
    finished = run(
        """
        import os, socket
        line = socket.socket(fileno=int(os.environ["PACELINE_PMI_FD"])).makefile("rw")
        def ask(text):
            line.write(text + "\\n"); line.flush()
            return dict(word.split("=", 1) for word in line.readline().split())
        assert ask("cmd=init pmi_version=1 pmi_subversion=1")["rc"] == "0"
        name = ask("cmd=get_my_kvsname")["kvsname"]
        rank = int(os.environ["PACELINE_RANK"])
        ask(f"cmd=put kvsname={name} key=k{rank} value=address{rank}")
        assert ask("cmd=barrier_in")["cmd"] == "barrier_out"
        print(name, ask(f"cmd=get kvsname={name} key=k{1 - rank}")["value"])
        """
    )
    rows = ranks_of(finished.stdout)
    names = {row.split()[0] for rank in rows for row in rows[rank]}
    assert len(names) == 1
    assert [rows[rank][0].split()[1] for rank in (0, 1)] == ["address1", "address0"]


def test_a_worker_that_does_not_speak_pmi_is_told_to_the_user_and_goes_on(run):
    finished = run(
        """
        import os, socket
        line = socket.socket(fileno=int(os.environ["PACELINE_PMI_FD"]))
        line.sendall(b"hello\\n")
        assert line.recv(1) == b""
        """,
        num_workers=1,
    )
    assert finished.code == 0
    assert "rank 0 sent something on its PMI socket that MPICH does not send: not a PMI-1 request" in finished.told[1]


def test_garbled_messages_are_told_and_ignored(run):
    finished = run(
        """
        import os
        os.write(int(os.environ["PACELINE_AGENT_FD"]), b'garbage\\n{"type": "Joined"}\\n')
        """,
        num_workers=1,
    )
    assert finished.code == 0
    assert "rank 0 sent its agent something else than a message" in finished.told[1]


def test_a_valid_tf_config_of_the_launcher_is_replaced_and_that_is_said(run):
    config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
    script = "import os; print(os.environ['PACELINE_RANK'], 'a:1' in os.environ['TF_CONFIG'])"
    finished = run(script, variables={"TF_CONFIG": config})
    assert sorted(finished.stdout.splitlines()) == ["[0] 0 False", "[1] 1 False"]
    assert "TF_CONFIG" in finished.told[1]


def test_a_wrong_tf_config_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch):
    def start_nothing(*_: object, **__: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(local_crew, "spawn_worker", start_nothing)
    job = JobDescription(command=("true",), num_workers=2, environment={"TF_CONFIG": "{'cluster': {}}"})
    with pytest.raises(ConfigurationError, match="TF_CONFIG"):
        running.run(job)


class Broken(Gathering):
    """A disk or a process table that is full, or a package that is missing, as the head meets it."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault
        self.told: list[str] = []
        self.codes: list[int] = []

    async def gather(self, generation: int) -> tuple[Member, ...]:
        raise self.fault

    def tell(self, lines: Sequence[str]) -> None:
        self.told += lines

    def show_life(self) -> None: ...

    async def close(self, exit_code: int) -> None:
        self.codes.append(exit_code)


@pytest.mark.parametrize(
    ("fault", "text", "code"),
    [
        (PermissionError(13, "Denied", "logs/job_0.log"), "[Errno 13] Denied: 'logs/job_0.log'. [host-failed]", 69),
        (ConfigurationError("s3://kept needs fsspec [option]"), "s3://kept needs fsspec [option]", 78),
    ],
)
def test_the_other_hosts_hear_why_the_head_cannot_go_on(fault: Exception, text: str, code: int):
    broken = Broken(fault)
    job = JobDescription(command=("true",), num_workers=1, environment={})
    with pytest.raises(type(fault)):
        asyncio.run(Head(job, "ab12", lambda *_: broken).run())
    (line,) = broken.told
    assert line.startswith("paceline: host ")
    assert line.endswith(f" cannot run the job: {text}")
    assert broken.codes == [code]


def test_a_command_that_cannot_be_started_leaves_nothing(capfd: pytest.CaptureFixture[str]):
    job = JobDescription(command=("/does/not/exist",), num_workers=2, environment=dict(os.environ))
    with pytest.raises(OSError, match="does/not/exist"):
        running.run(job)


def test_the_launcher_keeps_no_descriptors(capfd: pytest.CaptureFixture[str]):
    job = JobDescription(command=("true",), num_workers=2, environment=dict(os.environ))
    running.run(job)
    before = len(list(Path("/proc/self/fd").iterdir()))
    running.run(job)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
