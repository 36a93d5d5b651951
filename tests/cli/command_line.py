"""`paceline run` up to the point where the first process would start."""

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import paceline.launcher.running
from paceline.cli.verbs import app
from paceline.launcher.job import JobDescription
from paceline.launcher.running import check

SLURM_STEP = {
    "SLURM_JOB_ID": "1000",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
}
"""What `srun` tells the second of two nodes."""


class CommandLine:
    """Collects the jobs that would start."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: list[JobDescription] = []
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HOME", str(folder))
        for name in os.environ:
            if name.startswith(("PACELINE_", "SLURM_", "KERAS_", "TF_CONFIG")):
                monkeypatch.delenv(name)
        Path("train.py").touch()
        monkeypatch.setattr(paceline.launcher.running, "run", self._instead_of_running)
        monkeypatch.setattr("paceline.cli.run.leave", sys.exit)

    def __call__(self, *words: str, **variables: str) -> Result:
        return CliRunner().invoke(app, ["run", *words], env={"COLUMNS": "200", **variables})

    def job(self, *words: str, **variables: str) -> JobDescription:
        result = self(*words, **variables)
        assert result.exit_code == 0, result.output
        return self.jobs[-1]

    def refused(self, *words: str, **variables: str) -> tuple[int, str]:
        before = len(self.jobs)
        result = self(*words, **variables)
        assert result.exit_code != 0, "it was not refused"
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.stdout == ""
        assert len(self.jobs) == before
        return result.exit_code, result.stderr

    def _instead_of_running(self, job: JobDescription) -> int:
        check(job)
        self.jobs.append(job)
        return 0
