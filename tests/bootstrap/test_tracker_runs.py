"""A run of W&B or MLflow on every rank is told of once. The packages themselves: `end_to_end/test_trackers.py`."""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = pytest.mark.processes

WANDB = '''
"""As much of W&B as is looked at."""
from types import SimpleNamespace

def init(*, mode=None, group=None):
    return SimpleNamespace(disabled=mode == "disabled", group=group, settings=SimpleNamespace(mode=mode))
'''

CLIENT = '''
"""As much of MLflow as is looked at."""
from types import SimpleNamespace

class MlflowClient:
    def create_run(self, experiment_id, tags=None):
        return SimpleNamespace(data=SimpleNamespace(tags=tags or {}))
'''

SCRIPT = """
import sys
import wandb
from mlflow.tracking.client import MlflowClient
import paceline

chief = paceline.is_chief()
match sys.argv[1]:
    case "everywhere":
        for _ in range(2):
            wandb.init()
            MlflowClient().create_run("0")
    case "on the chief":
        wandb.init(mode=None if chief else "disabled")
        if chief:
            MlflowClient().create_run("0")
    case "meant":
        wandb.init(group="ranks")
        wandb.init(mode="shared")
        MlflowClient().create_run("0", tags={"mlflow.parentRunId": "1"})
"""


def _said(folder: Path, case: str, num_workers: int = 3) -> list[str]:
    (folder / "wandb.py").write_text(WANDB)
    (folder / "mlflow" / "tracking").mkdir(parents=True)
    for package in ("mlflow", "mlflow/tracking"):
        (folder / package / "__init__.py").touch()
    (folder / "mlflow" / "tracking" / "client.py").write_text(CLIENT)
    (folder / "script.py").write_text(SCRIPT)
    ended = run_workers(num_workers, "script.py", case, folder=folder)
    assert ended.code == 0, ended.output
    return [line for line in ended.output.splitlines() if line.endswith("[tracker-runs]")]


def test_a_run_on_every_rank_is_told_of_once(tmp_path: Path) -> None:
    """Nobody looked: each rank opened a run of its own, and each run had the same numbers."""
    said = _said(tmp_path, "everywhere")
    assert [line.partition(" ")[0] for line in said] == ["[1]", "[1]"]
    assert "each of the 3 ranks runs this script" in said[0]
    assert 'wandb.init(..., mode=None if paceline.is_chief() else "disabled")' in said[0]
    assert "`if paceline.is_chief():` before mlflow.start_run()" in said[1]


@pytest.mark.parametrize(
    ("case", "num_workers"),
    [
        ("on the chief", 2),
        pytest.param("meant", 2, marks=pytest.mark.proof),
        pytest.param("everywhere", 1, marks=pytest.mark.proof),
    ],
)
def test_nothing_is_said_of_one_run_nor_of_runs_that_are_meant(tmp_path: Path, case: str, num_workers: int) -> None:
    assert _said(tmp_path, case, num_workers) == []
