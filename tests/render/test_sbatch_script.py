"""The sbatch script as a shell runs it: the secret, the signals, the queue. `srun` and `scontrol` are stand-ins."""

import json
import shlex
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from fake_programs import LIMIT_SECONDS, next_line, running, write_program

from paceline.cluster.job_options import JobOptions
from paceline.cluster.spec import Address, ClusterSpec
from paceline.errors import EXIT_CONFIGURATION, ConfigurationError
from paceline.render.slurm import SlurmTarget, sbatch_script
from paceline.render.training_run import TrainingRun
from paceline.rendezvous.key import job_key

RUN = TrainingRun(
    script="train.py", arguments=("--name", "it's $HOME"), options=JobOptions(nnodes=2), variables={"A": "b 'c'"}
)
CLUSTER = ClusterSpec({"worker": (Address("a", 1), Address("b", 1))})

SRUN = f"""#!{sys.executable}
import json, os, signal, sys
path = os.environ["PACELINE_SECRET_FILE"]
report = {{"words": sys.argv[1:], "A": os.environ.get("A"), "file": path,
          "mode": oct(os.stat(path).st_mode & 0o7777), "secret": open(path).read()}}
signals = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, frame: signals.append(number))
print(json.dumps(report), flush=True)
for _ in range(int(os.environ["SIGNALS_BEFORE_THE_END"])):
    while not signals:
        signal.sigtimedwait([], 0.05)
    print(signal.Signals(signals.pop(0)).name, flush=True)
code = int(os.environ["CODE"])
if code < 0:
    if code != -9:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""

SCONTROL = """#!/bin/bash
echo "scontrol $*"
exit "${SCONTROL_CODE:-0}"
"""

# What the script does each second, it does ten times as often here.
SLEEP = """#!/bin/bash
exec /bin/sleep "0.$1"
"""


class Site:
    """A folder with the script and the stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.programs = folder / "programs"
        write_program(self.programs, "srun", SRUN)
        write_program(self.programs, "scontrol", SCONTROL)
        write_program(self.programs, "sleep", SLEEP)

    def job(
        self,
        code: int,
        *,
        signals: int = 0,
        target: SlurmTarget | None = None,
        cwd: Path | None = None,
        **variables: str,
    ) -> "AbstractContextManager[subprocess.Popen[bytes]]":
        """The script; its `srun` ends with `code` after so many signals."""
        script = self.folder / "job.sh"
        script.write_text(sbatch_script(RUN, target or SlurmTarget()))
        environment = {"SLURM_JOB_ID": "4711", "CODE": str(code), "SIGNALS_BEFORE_THE_END": str(signals), **variables}
        return running(script, self.programs, cwd or self.folder, environment)

    def leftovers(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} - {"job.sh"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def rest_of(process: "subprocess.Popen[bytes]") -> tuple[int, list[str]]:
    output, _ = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, output.decode().splitlines()


def test_each_node_gets_the_command_the_variables_and_a_secret(site: Site) -> None:
    with site.job(0) as process:
        told = json.loads(next_line(process))
        assert rest_of(process) == (0, [])
    assert told["words"][told["words"].index("paceline") :] == list(RUN.command())
    assert {"--nodes=2", "--ntasks-per-node=1"} <= set(told["words"])
    assert told["A"] == "b 'c'"
    assert told["file"] == str(site.folder / ".paceline-secret-4711")
    assert told["mode"] == "0o600"
    assert len(bytes.fromhex(told["secret"])) == 32
    assert site.leftovers() == set()


def test_paceline_accepts_the_secret_file_while_the_job_runs(site: Site) -> None:
    with site.job(0, signals=1) as process:
        path = json.loads(next_line(process))["file"]
        job_key(CLUSTER, {"PACELINE_SECRET_FILE": path})
        Path(path).chmod(0o640)
        with pytest.raises(ConfigurationError):
            job_key(CLUSTER, {"PACELINE_SECRET_FILE": path})
        process.send_signal(signal.SIGUSR1)
        assert rest_of(process) == (0, ["SIGUSR1"])


def test_every_start_of_the_job_has_another_secret(site: Site) -> None:
    """The file of a job that was killed before must not be taken over, nor may its permissions."""
    left = site.folder / ".paceline-secret-4711"
    left.write_text("old")
    left.chmod(0o644)
    with site.job(0) as process:
        told = json.loads(next_line(process))
        rest_of(process)
    assert told["secret"] != "old"
    assert told["mode"] == "0o600"


def test_a_notice_reaches_the_job_which_then_goes_back_to_the_queue(site: Site) -> None:
    with site.job(75, signals=1) as process:
        next_line(process)
        process.send_signal(signal.SIGUSR1)  # to the shell alone, as --signal=B: has it
        code, lines = rest_of(process)
    assert code == 75
    assert lines == ["SIGUSR1", "paceline: preempted; job 4711 goes back to the queue", "scontrol requeue 4711"]
    assert site.leftovers() == set()


@pytest.mark.parametrize("code", [0, 1, 75])
def test_many_notices_do_not_lose_the_exit_code(site: Site, code: int) -> None:
    with site.job(code, signals=5) as process:
        next_line(process)
        for _ in range(5):
            process.send_signal(signal.SIGUSR1)
            assert next_line(process) == "SIGUSR1"
        assert rest_of(process)[0] == code


def test_a_job_that_was_preempted_without_notice_goes_back_too(site: Site) -> None:
    with site.job(75) as process:
        next_line(process)
        code, lines = rest_of(process)
    assert (code, lines[-1]) == (75, "scontrol requeue 4711")


def test_a_cancelled_job_stays_cancelled(site: Site) -> None:
    """`scancel` sends SIGTERM to the shell and to the job, which writes a snapshot and ends with 75 too."""
    with site.job(75, signals=1) as process:
        next_line(process)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGUSR1)  # at once: the second must not be lost while the first is handled
        assert rest_of(process) == (75, ["SIGUSR1"])
    assert site.leftovers() == set()


def test_no_requeue_is_respected(site: Site) -> None:
    with site.job(75, signals=1, target=SlurmTarget(requeue=False)) as process:
        next_line(process)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGUSR1)
        assert rest_of(process) == (75, ["SIGUSR1"])


@pytest.mark.parametrize(("ending", "code"), [(0, 0), (3, 3), (69, 69), (127, 127), (-9, 137), (-15, 143)])
def test_the_jobs_code_is_the_scripts_and_nothing_is_queued(site: Site, ending: int, code: int) -> None:
    with site.job(ending) as process:
        next_line(process)
        received, lines = rest_of(process)
    assert received == code
    assert not [line for line in lines if "requeue" in line]


def test_a_requeue_that_fails_is_told(site: Site) -> None:
    with site.job(75, SCONTROL_CODE="1") as process:
        next_line(process)
        code, lines = rest_of(process)
    assert (code, lines[-1]) == (75, "paceline: requeue failed; submit the script again to go on")


def test_without_a_place_for_the_secret_nothing_starts(site: Site) -> None:
    with site.job(0, cwd=Path("/proc")) as process:
        code, lines = rest_of(process)
    assert code == EXIT_CONFIGURATION
    assert lines[-1].startswith("paceline: no secret could be written to /proc/.paceline-secret-4711.")


def test_what_comes_before_the_job_runs_as_written(site: Site) -> None:
    with site.job(0, target=SlurmTarget(setup=("echo before", 'export A="$A and more"'))) as process:
        assert next_line(process) == "before"
        assert json.loads(next_line(process))["A"] == "b 'c' and more"


def directives(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]


def test_slurm_reads_the_options_as_a_shell_would() -> None:
    target = SlurmTarget(job_name="a", time="1-0", partition="b", gpus_per_node="h100:8", cpus_per_task=4)
    lines = directives(sbatch_script(RUN, target))
    assert [shlex.split(line, comments=True) for line in lines] == [[line] for line in lines]
    assert {"--time=1-0", "--gpus-per-node=h100:8", "--nodes=2", "--signal=B:SIGUSR1@60", "--requeue"} <= set(lines)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # the whole text is compared below
        SlurmTarget(
            job_name="a b", time="soon", partition="#", gpus_per_node="0", cpus_per_task=0, job_output='"',
            notice_seconds=0, working_dir="here", setup=("\0",),
        )  # fmt: skip
    assert sorted(line.split(":")[0] for line in str(raised.value).splitlines()) == sorted(
        ["--job-name", "--time", "--partition",
         "--gpus-per-node", "--cpus-per-task", "--job-output", "--notice", "--working-dir", "--setup"]
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"(?s)SCRIPT: .*--env: .*--env: "):
        sbatch_script(TrainingRun(script="-c", variables={"1": "", "A": None}), SlurmTarget())


@pytest.mark.parametrize("time", ["90", "90:00", "1:30:00", "2-0", "2-12:30", "2-12:30:00", "UNLIMITED"])
def test_times_as_slurm_writes_them(time: str) -> None:
    assert f"--time={time}" in directives(sbatch_script(RUN, SlurmTarget(time=time)))


def test_no_option_can_end_its_line() -> None:
    for name in ("a\nb", "a\n", "a b", "a#b", "a'b", 'a"b', "a\\b"):
        with pytest.raises(ValueError, match="--job-name"):
            SlurmTarget(job_name=name)


def test_parameter_servers_are_in_the_command_and_refused_where_a_secret_is_required() -> None:
    options = JobOptions(nnodes=2, workers="2", ps=3)
    run = TrainingRun(script="train.py", options=options, variables={})
    assert "--workers 2 --ps 3" in sbatch_script(run, SlurmTarget())
    with pytest.raises(ConfigurationError, match=r"--require-secret: received --ps 3; expected no --ps"):
        sbatch_script(replace(run, options=replace(options, require_secret=True)), SlurmTarget())
