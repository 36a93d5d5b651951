"""`--snapshot-keep best:1:val_loss`: the best epoch's snapshot stays beside the newest, and a job goes on from it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.store.manifest import SnapshotInfo
from paceline.store.retention import METRICS, METRICS_EPOCH
from paceline.store.snapshots import SnapshotStore
from programs import run_workers

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("best_snapshots.py")
OPTIONS = ("--snapshot-dir", "first", "--snapshot-every", "600s", "--snapshot-keep", "best:1:val_loss", "--seed", "5")


def run(folder: Path) -> tuple[str, list[Any]]:
    ended = run_workers(1, *OPTIONS, SCRIPT, folder=folder)
    assert ended.code == 0, ended.output
    (line,) = {line.partition("END ")[2] for line in ended.output.splitlines() if "END " in line}
    return ended.output, json.loads(line)


def newest_and_best(directory: Path) -> tuple[SnapshotInfo, SnapshotInfo]:
    newest, best = SnapshotStore(directory).entries()
    assert isinstance(newest, SnapshotInfo)
    assert isinstance(best, SnapshotInfo)
    return newest, best


@pytest.mark.proof
def test_the_best_epochs_snapshot_is_left_and_the_job_goes_on_from_it(tmp_path: Path) -> None:
    _, undisturbed = run(tmp_path)
    (first, second), weights = undisturbed
    best_epoch = int(np.argmin(first["val_loss"]))
    assert 0 < best_epoch < 4
    cases = (("first", first, "val_loss", best_epoch), ("second", second, "loss", 0))
    for number, (name, history, metric, epoch) in enumerate(cases):
        newest, best = newest_and_best(tmp_path / name)
        assert newest.notes[METRICS_EPOCH] == len(history["loss"]) - 1
        assert best.notes[METRICS_EPOCH] == epoch
        assert best.notes[METRICS] == {key: values[epoch] for key, values in history.items()}
        assert metric in history
        tensors = SnapshotStore(tmp_path / name).open(best).tensors(0)
        assert weights[number][epoch] in [float(np.ravel(one)[0]) for one in tensors.values() if np.size(one) == 1]
        shutil.rmtree(newest.path)

    output, resumed = run(tmp_path)
    assert f"epoch {best_epoch + 1}, after 2 of its steps" in output
    assert "epoch 1, after 2 of its steps" in output
    assert resumed == undisturbed
