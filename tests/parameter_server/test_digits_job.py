"""A job of a chief, two workers, a parameter server and an evaluator trains on the digits."""

import json
from pathlib import Path

import pytest

from programs import run_python

JOB = Path(__file__).with_name("digits_job.py")


@pytest.mark.proof
@pytest.mark.processes
def test_the_digits_are_learned_and_counted(tmp_path: Path) -> None:
    options = ["--workers", "2", "--ps", "1", "--evaluator", "--snapshot-dir", "snapshots"]
    command = ["-m", "paceline", "run", *options, JOB, "5", tmp_path / "model.keras"]
    ended = run_python(*command, folder=tmp_path, limit_seconds=240)
    assert ended.code == 0, ended.output
    [line] = [line for line in ended.output.splitlines() if "told {" in line]
    told = json.loads(line.partition("told ")[2])
    assert told["iterations"] == 80
    assert told["history"]["val_accuracy"][-1] > 0.7
    assert told["evaluated"] == pytest.approx(told["expected"], abs=1e-6)
    assert told["difference"] < 1e-4, "of logits in float32, some of them above 10"
    assert "its script trains under a model or loop without a strategy" in told["refusal"]
    assert told["refusal"].endswith("[no-servers]")
    # Datasets, variables, tables and traced functions from before the strategy were on a device that was gone.
    assert told["of early data"] == pytest.approx(told["evaluated"], abs=1e-5)
    assert (told["early rows"], told["predicted"]) == (500 - 64, 500)
    assert 0.0 <= told["early metric"][0] <= 1.0
    assert "the scheduled function 'calling_python' calls Python" in told["python"]
    assert told["python"].endswith("[python-in-step]")
    # TensorFlow's coordinator printed each failure several times over, whole: 700 lines for five.
    assert "assertion failed: [too large]" in told["failing"]
    assert "processing closure" not in ended.output
    assert "Start cancelling" not in ended.output
    lines = (tmp_path / "snapshots" / "evaluator" / "evaluations.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert last["step"] == 80
    assert [last["metrics"][name] for name in ("loss", "accuracy")] == pytest.approx(told["expected"], abs=1e-5)
