"""Jobs with ``--evaluator``: real workers, an evaluator that is killed, and a restart of all."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import EXIT_CONFIGURATION
from programs import Program, run_python, start_python

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("followed.py")
LIMIT_SECONDS = 400.0
STEPS_OF_EPOCH = 3


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition: Callable[[], object], job: Program) -> None:
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > give_up_at or job.process.poll() is not None:
            pytest.fail(f"it never came\n{job.kill()}")
        time.sleep(0.05)


@pytest.mark.proof
def test_an_evaluator_gets_the_numbers_of_the_workers_and_survives_what_happens(tmp_path: Path) -> None:
    snapshots = tmp_path / "snapshots"
    options = ("--snapshot-dir", snapshots, "--snapshot-every", str(STEPS_OF_EPOCH), "--snapshot-keep", "2")
    job = start_python(
        *("-m", "paceline", "run", "--workers", "2", "--max-restarts", "1", "--evaluator", *options),
        *(SCRIPT, tmp_path),
        folder=tmp_path,
    )
    lines = snapshots / "evaluator" / "evaluations.jsonl"
    pids = tmp_path / "evaluator_0.1.pids"
    wait_for(lambda: len(json_lines(lines)) >= 2, job)

    os.kill(int(pids.read_text()), signal.SIGKILL)
    num_lines = len(json_lines(lines))
    wait_for(lambda: len(json_lines(lines)) > num_lines, job)
    assert len(pids.read_text().split()) == 2, "another process has written that line"

    os.kill(int((tmp_path / "worker_1.1.pids").read_text()), signal.SIGKILL)
    wait_for((tmp_path / "evaluator_0.2.pids").exists, job)
    num_lines = len(json_lines(lines))
    wait_for(lambda: len(json_lines(lines)) > num_lines, job)

    (tmp_path / "enough").touch()
    ended = job.ended(LIMIT_SECONDS)
    assert ended.code == 0, ended.output
    assert "paceline: evaluator 0 is started again; the others go on" in ended.output
    assert "paceline: training has ended; waiting up to 600 s for the last work of evaluator 0" in ended.output

    evaluations = json_lines(lines)
    steps = [one["step"] for one in evaluations]
    assert steps == sorted(set(steps)), "each once, and in order"
    validations = {one["step"]: one["logs"] for one in json_lines(tmp_path / "validations.jsonl")}
    assert steps[-1] == max(validations), "the last snapshot, although the workers had ended before"
    compared = [one for one in evaluations if one["step"] % STEPS_OF_EPOCH == 0]
    assert len(compared) >= 3, "the first two and the last are of ends of epochs; a death may leave others"
    for one in compared:
        expected = {name: validations[one["step"]][f"val_{name}"] for name in one["metrics"]}
        assert one["metrics"] == pytest.approx(expected, abs=1e-6, rel=1e-6)
        assert set(one["metrics"]) == {"loss", "sign_loss", "sum_loss", "sign_accuracy", "sum_mae", "sum_length"}
    assert len(list(lines.parent.glob("events.out.tfevents.*"))) >= 1

    assert (tmp_path / "worker_0.came_out_of_fit").exists()
    assert not (tmp_path / "evaluator_0.came_out_of_fit").exists(), "it writes none of the workers' files"


TWO_FITS = """
import json, os, keras, numpy as np
place = os.environ["PACELINE_TASK"].replace(" ", "_")
rows = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
sums = rows.sum(axis=1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(rows, sums, batch_size=8, epochs=2, validation_split=0.25, verbose=0)
first = model.evaluate(rows[30:], sums[30:], verbose=0)
model.save(f"{place}.keras")
model.compile("adam", "mae", metrics=["mse"])
model.fit(rows, sums, epochs=2, validation_data=(rows[:7], sums[:7]), validation_batch_size=3, verbose=0)
print("TOLD", json.dumps([first, *model.evaluate(rows[:7], sums[:7], verbose=0)]))
"""


def test_an_evaluator_that_is_late_evaluates_the_end_of_each_fit(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TWO_FITS)
    options = ("--evaluator", "--snapshot-dir", "snapshots")
    job = start_python("-m", "paceline", "run", "--workers", "1", *options, script, folder=tmp_path)
    ended = job.ended(LIMIT_SECONDS)
    assert ended.code == 0, ended.output
    [told] = [line.partition("TOLD ")[2] for line in ended.lines() if "TOLD " in line]
    first, loss, mse = json.loads(told)
    last_of = {one["fit_call"]: one for one in json_lines(tmp_path / "snapshots" / "evaluator" / "evaluations.jsonl")}
    assert last_of[0]["metrics"] == pytest.approx({"loss": first}, abs=1e-6)
    assert last_of[1]["metrics"] == pytest.approx({"loss": loss, "mse": mse}, abs=1e-6)
    assert [path.name for path in tmp_path.glob("*.keras")] == ["worker_0.keras"], "the evaluator saves nothing"


NOT_VALIDATED = """
import os, time
while os.environ["PACELINE_TASK"] == "worker 0" and not os.path.exists("told"):
    time.sleep(0.05)
if os.environ["PACELINE_TASK"] == "evaluator 0":
    import keras, numpy as np
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4)), np.ones(8), verbose=0)
"""


@pytest.mark.proof
def test_a_fit_without_validation_data_is_told_and_the_job_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(NOT_VALIDATED)
    job = start_python("-m", "paceline", "run", "--evaluator", "--snapshot-dir", "s", script, folder=tmp_path)
    wait_for(lambda: "evaluator 0 is not started again" in job.output(), job)
    (tmp_path / "told").touch()
    ended = job.ended(LIMIT_SECONDS)
    assert ended.code == 0, ended.output
    assert "`fit` was called without validation_data, so there is nothing to evaluate. Give" in ended.output
    assert "evaluator 0 is not started again, because it would fail again; the others go on without it." in ended.output


def test_an_evaluator_needs_snapshots(tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()
    ended = run_python("-m", "paceline", "run", "--evaluator", "script.py", folder=tmp_path)
    assert ended.code in (2, EXIT_CONFIGURATION)
    assert "--evaluator" in ended.output
    assert "write --snapshot-dir FOLDER, too" in ended.output
