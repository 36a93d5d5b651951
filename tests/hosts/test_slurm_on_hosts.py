"""Jobs under a real Slurm of two nodes: everything is found in its variables."""

import sys
import time
from pathlib import Path

import pytest
from lab import TCP_ONLY
from slurm_site import SlurmSite
from trained import SCRIPT, assert_trained_alike

from process_table import Seen, until_gone

pytestmark = pytest.mark.processes

LIMIT_SECONDS = 120.0


def test_a_step_has_a_task_on_each_node(slurm: SlurmSite) -> None:
    ended = slurm.run(["srun", "--nodes=2", "--label", "hostname"])
    assert sorted(ended.output.splitlines()) == ["0: alpha", "1: beta"]


def test_a_script_under_srun_needs_no_launcher(slurm: SlurmSite, tmp_path: Path, alone) -> None:
    """Two tasks on each of two nodes."""
    before = slurm.lab.bytes("beta")
    command = ["srun", "--nodes=2", "--ntasks-per-node=2", sys.executable, SCRIPT, tmp_path]
    ended = slurm.run(command, variables=TCP_ONLY)
    assert ended.code == 0, ended.output
    trained = assert_trained_alike(tmp_path, 4, alone)
    for now, then in zip(slurm.lab.bytes("beta"), before, strict=True):
        assert now - then >= trained["gradient_bytes"] / 2


def test_a_batch_job_with_one_launcher_on_each_node(slurm: SlurmSite, tmp_path: Path, alone) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n"
        "#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2\n"
        f"srun --cpus-per-task=2 {sys.executable} -m paceline run --workers 2 {SCRIPT} {tmp_path}\n"
    )
    log = tmp_path / "log"
    submitted = slurm.run(["sbatch", f"--output={log}", "--wait", script], variables=TCP_ONLY)
    assert submitted.code == 0, f"{submitted.output}{log.read_text() if log.exists() else ''}"
    assert_trained_alike(tmp_path, 4, alone)


def test_a_cancelled_job_leaves_no_process(slurm: SlurmSite, tmp_path: Path) -> None:
    """`scancel` while ranks train."""
    program = tmp_path / "waits.py"
    program.write_text(
        "import pathlib, sys, time, paceline\n"
        f"pathlib.Path({str(tmp_path)!r}, f'rank{{paceline.rank()}}').touch()\n"
        "time.sleep(600)\n"
    )
    launched = f"srun {sys.executable} -m paceline run --workers 1 {program}"
    log = tmp_path / "log"
    submitted = slurm.run(["sbatch", "--parsable", "--nodes=2", f"--output={log}", f"--wrap={launched}"])
    assert submitted.code == 0, submitted.output
    _wait_until(lambda: (tmp_path / "rank0").exists() and (tmp_path / "rank1").exists(), "no ranks", log)
    assert slurm.run(["scancel", submitted.output.strip()]).code == 0
    assert not until_gone(lambda: _python_programs(slurm), LIMIT_SECONDS), log.read_text()


def _python_programs(slurm: SlurmSite) -> list[Seen]:
    seen = [one for host in slurm.lab.hosts for one in slurm.lab.processes(host)]
    return [one for one in seen if any("python" in word for word in one.command)]


def _wait_until(condition, otherwise: str, log: Path) -> None:
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, otherwise + (log.read_text() if log.exists() else "no output")
        time.sleep(0.1)
