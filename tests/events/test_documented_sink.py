"""The sink of docs/events.md, as it stands there; and the file of a job that trains, fails and restarts."""

import csv
import json
import re
from pathlib import Path

import pytest

from programs import run_python, run_workers

pytestmark = pytest.mark.processes

PAGE = Path(__file__).parents[2] / "docs" / "events.md"
SCRIPT = Path(__file__).with_name("training.py").read_text()
TEXT = PAGE.read_text()
ROWS = re.findall(r"^\| `(\w+)` \|.*?\| (.*) \|$", TEXT, re.MULTILINE)
RECORDS = {name: set(re.findall(r"`(\w+)`: ", keys)) for name, keys in ROWS}
FRAME = {"event", "time", "process", "host", "rank"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the page's file, and a script that uses it."""
    [example] = [one for one in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "metrics_csv.py:" in one]
    assert len(example.splitlines()) < 60
    (tmp_path / "metrics_csv.py").write_text(example)
    (tmp_path / "training.py").write_text(SCRIPT)
    return tmp_path


def check_metrics(folder: Path, rank: int) -> None:
    rows = list(csv.DictReader((folder / "metrics" / f"rank-{rank}.csv").open()))
    assert [(row["epoch"], row["step"]) for row in rows] == [("0", "3"), ("1", "6")]
    assert all(float(row["loss"]) > 0 and float(row["steps_per_second"]) > 0 for row in rows)


def test_without_a_launcher_and_without_snapshots(folder: Path) -> None:
    ended = run_python("training.py", folder=folder)
    assert ended.lines("SEEN") == ["SEEN 0"], ended.output
    assert ended.output.count("[event-sink]") == 1
    check_metrics(folder, 0)


def test_with_a_launcher_and_snapshots_on_each_rank(folder: Path) -> None:
    ended = run_workers(2, "--events", "events.jsonl", "training.py", "snapshots", folder=folder)
    assert ended.code == 0, ended.output
    assert sorted(line.partition("] ")[2] for line in ended.lines("[") if "SEEN" in line) == ["SEEN 0", "SEEN 1"]
    for rank in (0, 1):
        check_metrics(folder, rank)
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for line in lines:
        assert set(line) - FRAME == RECORDS[line["event"]] - FRAME, line
    kinds = [line["event"] for line in lines]
    assert kinds[:5] == ["JobBegan", "Notice", "HostJoined", "GenerationBegan", "WorkerStarted"]
    assert kinds[-3:] == ["GenerationEnded", "JobAccount", "JobEnded"]
    for rank in (0, 1):
        own = [line for line in lines if line.get("rank") == rank]
        ends = [(line["epoch"], line["step"]) for line in own if line["event"] == "EpochEnded"]
        assert ends == [(0, 3), (1, 6)]
        assert all(line["process"] == f"worker {rank}" and line["host"] for line in own)
    # The second fit ends in an exception after its second step, of which the first is counted.
    assert [line["step"] for line in lines if line["event"] == "FitEnded"] == [6, 6, 7, 7]
    assert lines[-1]["num_steps"] == 7


DIES = """
import os, keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((24, 4)), np.ones(24), epochs=2, batch_size=4, verbose=0)
"""


def test_a_job_that_restarts_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    options = ("--max-restarts", "1", "--snapshot-dir", "kept", "--snapshot-every", "2")
    chaos = ("--chaos", "kill:rank=0,step=7")
    ended = run_workers(1, *options, *chaos, "--events", "events", "dies.py", folder=tmp_path, limit_seconds=280)
    assert ended.code == 0, ended.output
    lines = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]

    def of(kind: str) -> list[dict[str, object]]:
        return [line for line in lines if line["event"] == kind]

    [fault] = of("FaultInjected")
    assert fault["rank"] == 0
    [killed] = [line for line in of("RankEnded") if line["exit_code"] == -9 and line["rank"] == 0]
    first, second = of("GenerationEnded")
    assert (first["reason"], first["step"]) == ("rank 0 was killed by signal 9 (SIGKILL)", 7)
    assert (second["reason"], second["exit_code"]) == ("", 0)
    assert [line["generation"] for line in of("GenerationBegan")] == [1, 2]
    [restarted], [recovered], [end] = of("Restarted"), of("Recovered"), of("JobEnded")
    assert restarted["generation"] == recovered["generation"] == 2
    assert recovered["step"] == 7 - recovered["num_lost_steps"]  # type: ignore[operator]
    assert {line["rank"] for line in of("TrainingResumed")} == {0}
    assert (end["num_steps"], end["num_restarts"], end["exit_code"]) == (12, 1, 0)
    assert end["num_repeated_steps"] == recovered["num_lost_steps"]
    assert killed["time"] <= restarted["time"] <= recovered["time"] <= end["time"]  # type: ignore[operator]
    said = [text for line in lines if line["event"] == "Notice" for text in line["lines"]]  # type: ignore[attr-defined]
    assert any("[worker-failed]" in text for text in said)


def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('it runs')")
    ended = run_workers(2, "--events", "missing/events", "script.py", folder=tmp_path)
    assert ended.code == 78, ended.output
    assert "it runs" not in ended.output
    assert ended.output.splitlines()[-1].endswith("[events-file]")
