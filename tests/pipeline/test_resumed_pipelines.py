"""A pipeline whose workers are killed goes on from its snapshots, cut as before or at other places."""

import ast
import shutil
from pathlib import Path

import numpy as np
import pytest

from programs import Ended, run_workers

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

_SCRIPT = Path(__file__).with_name("resumed_job.py")


def _run(folder: Path, stages: int, workers: int, *options: str, schedule: str = "1f1b", job: str = "skips") -> Ended:
    variables = {"PACELINE_SEED": "5"}
    arguments = (_SCRIPT, str(stages), schedule, job)
    return run_workers(workers, *options, *arguments, folder=folder, limit_seconds=300, variables=variables)


def _end_of(ended: Ended) -> tuple[str, dict[str, list[float]]]:
    """The digest of the predictions, and the history; the same on all ranks."""
    lines = {line.partition("END ")[2] for line in ended.output.splitlines() if "END " in line}
    assert len(lines) == 1, ended.output
    digest, _, history = lines.pop().partition(" ")
    return digest, ast.literal_eval(history)


@pytest.mark.proof
@pytest.mark.parametrize("job", ["skips", "tied_head"])
def test_a_killed_pipeline_ends_as_an_undisturbed_one(tmp_path: Path, job: str) -> None:
    """A replica of the last stage is killed in the middle of an epoch. Three stages go on from an earlier snapshot."""
    undisturbed = _end_of(_run(tmp_path, 2, 4, job=job))
    snapshots = ("--snapshot-dir", str(tmp_path / "run"), "--snapshot-every", "3")
    killed = _run(tmp_path, 2, 4, *snapshots, "--chaos", "kill:rank=3,step=10", "--max-restarts", "1", job=job)
    assert killed.code == 0, killed.output
    assert "resuming from the snapshot of step" in killed.output, killed.output
    assert _end_of(killed) == undisturbed

    in_epoch = [folder for folder in (tmp_path / "run").glob("step-*") if _step_of(folder) % 4]
    for folder in (tmp_path / "run").glob("step-*"):
        if folder != min(in_epoch):
            shutil.rmtree(folder)
    others = _run(tmp_path, 3, 3, *snapshots, job=job)
    assert f"resuming from the snapshot of step {_step_of(min(in_epoch))}" in others.output, others.output
    assert "taken by 4 ranks, resumed by 3" in others.output, others.output
    _, history = _end_of(others)
    for name, values in undisturbed[1].items():
        np.testing.assert_allclose(history[name], values, rtol=1e-9)


def test_a_killed_asynchronous_pipeline_goes_on(tmp_path: Path) -> None:
    """Snapshots are taken between executions, when no batch is under way, so it ends as an undisturbed one, too."""
    undisturbed = _end_of(_run(tmp_path, 2, 2, schedule="pipedream"))
    options = ("--snapshot-dir", str(tmp_path / "run"), "--snapshot-every", "2", "--max-restarts", "1")
    killed = _run(tmp_path, 2, 2, *options, "--chaos", "kill:rank=1,step=10", schedule="pipedream")
    assert killed.code == 0, killed.output
    assert "resuming from the snapshot of step" in killed.output, killed.output
    assert _end_of(killed) == undisturbed


def _step_of(folder: Path) -> int:
    return int(folder.name.split("-")[1])
