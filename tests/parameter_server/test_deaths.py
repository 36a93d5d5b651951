"""Processes are killed while a job trains, evaluates and predicts: the others go on, and every count stays exact."""

import json
import re
from pathlib import Path

import pytest

from programs import Ended, run_python

JOB, INTERRUPTED = (Path(__file__).with_name(name) for name in ("deaths_job.py", "interrupted_job.py"))


@pytest.mark.processes
@pytest.mark.timeout(900)
def test_steps_of_killed_workers_are_done_again(tmp_path: Path) -> None:
    """TensorFlow connects with all workers or none: one that stayed dead kept another from coming back."""
    options = ("--workers", "3", "--ps", "1", "--max-restarts", "4", "--hang-timeout", "15")
    ended = run_python("-m", "paceline", "run", *options, JOB, folder=tmp_path, limit_seconds=300)
    assert ended.code == 0, ended.output
    [line] = [line for line in ended.output.splitlines() if "told {" in line]
    told = json.loads(line.partition("told ")[2])
    assert told["iterations"] == 50 + 55 + 800
    assert told["iterations at the end"] == 50 + 55 + 800 + 50
    assert told["rows"] == [1600.0, 1600.0]
    assert {name: told["evaluated"][name] for name in told["expected"]} == pytest.approx(told["expected"], abs=1e-6)
    assert told["difference"] < 1e-6
    assert len(re.findall(r"worker \d takes steps again", ended.output)) == 4
    assert re.search(r"worker \d made no step for 15 s \(--hang-timeout\); ending it\. \[hang\]", ended.output)
    assert "worker 2 is not started again, as --max-restarts allows no more restarts" in ended.output
    assert re.search(r"\d steps? (was|were) done again", ended.output)


@pytest.mark.proof
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_training_goes_on_from_the_newest_snapshot(tmp_path: Path) -> None:
    def run(fault: str) -> Ended:
        options = ["--max-restarts", "2", "--snapshot-dir", tmp_path / fault.removeprefix("after-")]
        command = ["-m", "paceline", "run", "--workers", "2", "--ps", "1", *options, "--snapshot-every", "20"]
        return run_python(*command, INTERRUPTED, fault, folder=tmp_path, limit_seconds=180)

    killed = run("kill")
    assert killed.code == 0, killed.output
    assert re.search(r"resuming from the snapshot of step 1[024]0: epoch 2", killed.output), killed.output
    assert re.search(
        r"paceline: ps 0 was killed .* at step 1\d\d; generation 2 resumes from step 1[024]0 ", killed.output
    )
    assert re.search(
        r"paceline: the chief was killed .* at step 2\d\d; generation 3 resumes from step 2[024]0 ", killed.output
    )
    assert "rank 0" not in killed.output
    assert "encountered the following error" not in killed.output, "TensorFlow logs what it then raises"
    left = run("leave")
    assert left.code == 75, left.output
    again = run("after-leave")
    assert again.code == 0, again.output
    assert again.output.count("each worker's dataset begins anew") == 1
    for ended in (killed, again):
        [line] = [line for line in ended.output.splitlines() if "told {" in line]
        assert json.loads(line.partition("told ")[2]) == {"iterations": 320, "rows": [320.0] * 4}
