"""W&B and MLflow themselves, offline, with the code of docs/trackers.md. `make trackers-test` installs both."""

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from programs import run_workers

wandb = pytest.importorskip("wandb", reason="make trackers-test installs W&B and MLflow")
mlflow = pytest.importorskip("mlflow", reason="make trackers-test installs W&B and MLflow")

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

SCRIPT = Path(__file__).parent / "tracked.py"
PAGE = (Path(__file__).parents[2] / "docs" / "trackers.md").read_text(encoding="utf-8")
OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # its databases need more packages
}
_BLOCK_BYTES, _WHOLE, _LAST = 32768, 1, 4


def _block(words: str) -> str:
    """The code of the page that has `words`."""
    [found] = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if words in block]
    return str(found)


def _train(folder: Path, *arguments: str, restart: bool = False) -> str:
    """The output of two workers; with `restart` the chief is killed in the second epoch of three."""
    options = ("--chaos", "kill:rank=0,step=6", "--max-restarts", "1", "--snapshot-dir", "snapshots")
    often = ("--snapshot-every", "1")
    ended = run_workers(
        2,
        *(options + often if restart else ()),
        SCRIPT,
        *arguments,
        folder=folder,
        limit_seconds=170,
        variables=OFFLINE,
    )
    assert ended.code == 0, ended.output
    assert ("generation 2" in ended.output) == restart, ended.output
    return ended.output


def _records(content: bytes) -> Iterator[bytes]:
    """Those of a file of W&B's, whose format is that of LevelDB's logs: blocks, and in these pieces of records."""
    at, record = 7, b""  # after the file's own header
    while at + 7 <= len(content):
        if (rest := _BLOCK_BYTES - at % _BLOCK_BYTES) < 7:
            at += rest
            continue
        size, kind = struct.unpack_from("<HB", content, at + 4)
        record += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (_WHOLE, _LAST):
            yield record
            record = b""


def _rows_of_wandb(folder: Path) -> list[dict[str, Any]]:
    """All rows of the runs in a folder, in the order of their files."""
    from wandb.proto import wandb_internal_pb2

    rows = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        for content in _records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(content)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


def _runs_of_mlflow(folder: Path) -> list[Any]:
    client = mlflow.MlflowClient(f"file:{folder / 'mlruns'}")
    return list(client.search_runs(["0"]))


def _losses(points: list[tuple[int, float]]) -> dict[int, float]:
    """By epoch. One that was trained again after the restart is there twice, with the same loss."""
    losses = dict(points)
    assert all(loss == losses[epoch] for epoch, loss in points), points
    assert len(points) <= len(losses) + 1, points
    return losses


@pytest.fixture(autouse=True)
def _file_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def test_runs_on_every_rank_are_told_of(tmp_path: Path) -> None:
    said = [line for line in _train(tmp_path, "everywhere: wandb, mlflow").splitlines() if "[tracker-runs]" in line]
    assert len(said) == 2
    assert "a run of W&B" in said[0]
    assert "a run of MLflow" in said[1]
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2
    assert len(_runs_of_mlflow(tmp_path)) == 2


def test_wandb_as_the_page_says_is_one_run_also_after_a_restart(tmp_path: Path) -> None:
    assert "[tracker-runs]" not in _train(tmp_path, "wandb", _block("WandbMetricsLogger"), restart=True)
    folders = list(tmp_path.glob("wandb/offline-run-*"))
    assert len(folders) == 2  # one for each generation
    assert {path.name.partition("digits")[2] for path in folders} == {"-1"}
    rows = [row for row in _rows_of_wandb(tmp_path) if "epoch/epoch" in row]
    assert _losses([(row["epoch/epoch"], row["epoch/loss"]) for row in rows]).keys() == {0, 1, 2}


def test_mlflow_as_the_page_says_is_one_run_also_after_a_restart(tmp_path: Path) -> None:
    assert "[tracker-runs]" not in _train(tmp_path, "mlflow", _block("MlflowCallback"), restart=True)
    [run] = _runs_of_mlflow(tmp_path)
    assert run.info.status == "FINISHED"
    points = mlflow.MlflowClient(f"file:{tmp_path / 'mlruns'}").get_metric_history(run.info.run_id, "loss")
    assert _losses([(point.step, point.value) for point in points]).keys() == {0, 1, 2}


def test_mlflow_logs_by_itself_as_the_page_says(tmp_path: Path) -> None:
    """On the chief alone, `autolog` predicts and draws from the data, which all ranks must do together."""
    assert "[tracker-runs]" not in _train(tmp_path, "mlflow", "import paceline\n" + _block("autolog"))
    [run] = _runs_of_mlflow(tmp_path)
    client = mlflow.MlflowClient(f"file:{tmp_path / 'mlruns'}")
    assert len(client.get_metric_history(run.info.run_id, "loss")) == 3
    assert list((tmp_path / "mlruns").rglob("model.keras"))
