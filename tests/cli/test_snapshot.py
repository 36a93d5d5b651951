"""`paceline snapshot` as users type it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from typer.testing import CliRunner, Result

from paceline.cli.snapshot_table import age
from paceline.cli.verbs import app
from paceline.store.manifest import SnapshotMeta
from paceline.store.retention import METRICS, METRICS_EPOCH
from paceline.store.shards import Shard
from paceline.store.snapshots import SnapshotStore, Writer

LIMIT_SECONDS = 60


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three snapshots of two workers."""
    store = SnapshotStore(tmp_path / "run", keep=None, writer=Writer("job"))
    state = {"own": {"metrics": [["mean/total", [2, 3], "variables/00000"], ["gone", [2], "metrics/00000"]]}}
    for step in (100, 200, 300):
        tensors = {"variables/00000": numpy.full((2, 3), step, "float32")}
        records = [store.write_shard(step, rank, Shard(tensors, state)) for rank in range(2)]
        notes = {"tensorflow": "2.21", METRICS: {"val_loss": 5.0 if step == 200 else 0.1}, METRICS_EPOCH: step // 100}
        store.commit(step, SnapshotMeta(step // 100, 0, 2, notes), records)
    return tmp_path / "run"


def damage(run: Path, step: int) -> None:
    path = run / f"step-{step:012d}" / "rank-00001" / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def snapshot(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["snapshot", *map(str, arguments)])


def test_list_in_a_pipe_is_a_line_each(run: Path):
    (run / "step-000000000200" / "manifest.json").write_text("{")
    result = snapshot("list", run)
    header, *lines = [line.split() for line in result.stdout.splitlines()]
    assert header == ["step", "epoch", "fit", "workers", "age", "size", "state"]
    assert [line[0] for line in lines] == ["300", "200", "100"]
    assert lines[0][1:4] == ["4", "1", "2"]  # from 1, as in the log
    assert lines[0][-1] == "complete"
    assert "damaged:" in lines[1]
    assert "\x1b" not in result.stdout


def test_list_of_an_empty_directory(tmp_path: Path):
    assert "no snapshots" in snapshot("list", tmp_path).stdout
    assert json.loads(snapshot("list", tmp_path, "--json").stdout) == []


def test_list_as_json(run: Path):
    (run / "step-000000000200" / "manifest.json").unlink()
    newest, torn, oldest = json.loads(snapshot("list", run, "--json").stdout)
    assert (newest["step"], newest["epoch"], newest["world_size"], newest["fault"]) == (300, 3, 2, None)
    assert newest["size_bytes"] > 48
    assert "missing" in torn["fault"]
    assert oldest["step"] == 100


@pytest.mark.parametrize("which", [(), ("newest",), ("300",), ("step-000000000300",)])
def test_show(run: Path, which: tuple[str, ...]):
    shown = snapshot("show", run, *which).stdout
    for part in ("step-000000000300", "2.21", "F32", "[2, 3]", "rank 1", "tensors.safetensors"):
        assert part in shown
    [line, _] = [line.split() for line in shown.splitlines() if "variables/00000" in line]
    assert line[-1] == "mean/total", "a variable is called as Keras calls it"


def test_show_as_json(run: Path):
    shown = json.loads(snapshot("show", run, "100", "--json").stdout)
    assert shown["notes"]["tensorflow"] == "2.21"
    assert shown["notes"][METRICS] == {"val_loss": 0.1}
    assert shown["shards"][1]["tensors"] == {"variables/00000": {"dtype": "F32", "shape": [2, 3], "path": "mean/total"}}


def test_newest_is_the_newest_that_is_not_torn(run: Path):
    (run / "step-000000000300" / "manifest.json").unlink()
    assert json.loads(snapshot("show", run, "--json").stdout)["step"] == 200
    result = snapshot("show", run, "300")
    assert result.exit_code == 1
    assert "missing" in result.output


def test_verify_names_the_damaged_ones(run: Path):
    assert snapshot("verify", run).exit_code == 0
    damage(run, 200)
    result = snapshot("verify", run)
    assert result.exit_code == 1
    assert "step-000000000300  intact" in result.output
    assert "step-000000000200  damaged" in result.output
    assert "rank-00001/tensors.safetensors does not match its checksum" in result.output
    assert "1 of 3 damaged: step-000000000200" in result.output
    assert snapshot("verify", run, "300").exit_code == 0
    assert snapshot("verify", run, "200").exit_code == 1


def test_prune(run: Path):
    result = snapshot("prune", run, "--keep", 1, "--dry-run")
    assert "would remove step-000000000200" in result.stdout
    assert len([*run.glob("step-*")]) == 3
    damage(run, 300)
    result = snapshot("prune", run, "--keep", 1)
    assert result.exit_code == 0
    assert "removed step-000000000100" in result.stdout
    assert sorted(path.name for path in run.glob("step-*")) == ["step-000000000200", "step-000000000300"]


def test_prune_keeps_the_best(run: Path):
    result = snapshot("prune", run, "--keep", "best:1:val_loss")
    assert (result.exit_code, result.stdout) == (0, "removed step-000000000200\n2 kept, 1 removed\n")
    damage(run, 100)
    result = snapshot("prune", run, "--keep", "best:1:val_loss,every:50")
    assert "removed step-000000000100" in result.stdout, "a damaged one counts as the best"
    assert [path.name for path in run.glob("step-*")] == ["step-000000000300"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("list", "nowhere"), "which is no directory"),
        (("show", ".", "7"), "expected one of these steps: none"),
        (("prune", ".", "--keep", "0"), "Invalid value for '--keep'"),
        (("prune", ".", "--keep", "best:1:dice"), "add :min or :max"),
        (("prune", "."), "--keep"),
        (("verify",), "DIR"),
    ],
)
def test_wrong_arguments_are_usage_errors(
    arguments: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    result = snapshot(*arguments)
    assert result.exit_code == 2
    assert expected in result.output


def test_a_store_that_is_not_known_is_a_configuration_error():
    result = snapshot("list", "no-such-protocol://bucket")
    assert result.exit_code == 78
    assert "paceline[remote]" in result.output


def test_an_object_store_can_be_listed(run: Path):
    assert "300" in snapshot("list", f"file://{run}").stdout


@pytest.mark.parametrize("verb", ["list", "show", "verify", "prune"])
def test_every_verb_has_examples(verb: str):
    assert "Examples: paceline snapshot" in snapshot(verb, "--help").stdout


@pytest.mark.parametrize("arguments", [("list",), ("show",), ("verify",), ("prune", "--keep", "1")], ids=str)
def test_nothing_heavy_is_loaded(run: Path, arguments: tuple[str, ...]):
    code = (
        "import sys\n"
        f"sys.argv = ['paceline', 'snapshot', *{arguments!r}, {str(run)!r}]\n"
        "from paceline.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'tensorflow', 'keras', 'mpi4py', 'numpy', 'fsspec', 'asyncio', 'safetensors'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (0.4, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3725, "1 h 2 min"), (90_000, "1 d 1 h")],
)
def test_age(seconds: float, text: str):
    assert age(seconds) == text
