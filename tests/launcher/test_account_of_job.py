"""Where the time of a job went adds up to its wall time, whatever happens to the job."""

import json
from pathlib import Path
from typing import Any

import pytest

from programs import Ended, run_python

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
WITHIN, SECONDS_AROUND = 0.01, 1.0
"""The share of the wall time that the account may miss; of a short job, what the command does before and after it."""
STEP_SECONDS, VALIDATION_SECONDS, SCRIPT_SECONDS = 0.15, 0.5, 1.5
"""The naps of `accounted.py`."""


def run(folder: Path, *arguments: str, workers: int = 2) -> Ended:
    command = (HERE / "timed_command.py", "run", "--workers", str(workers), "--events", "events", *arguments)
    return run_python(*command, folder=folder, limit_seconds=800)


def checked_account(folder: Path, ended: Ended) -> dict[str, Any]:
    lines = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    account, end = lines[-2:]
    assert (account["event"], end["event"]) == ("JobAccount", "JobEnded")
    [wall] = [float(line.split()[1]) for line in ended.lines("WALL")]
    parts = [account["parts"], *(death["seconds"] for death in account["deaths"])]
    assert all(seconds > 0 for some in parts for seconds in some.values())
    assert sum(sum(some.values()) for some in parts) == pytest.approx(account["seconds"], rel=1e-9)
    assert account["seconds"] == pytest.approx(wall, rel=WITHIN, abs=SECONDS_AROUND)
    assert end["lost_seconds"] == pytest.approx(sum(sum(one["seconds"].values()) for one in account["deaths"]))
    assert end["num_repeated_steps"] == sum(one["num_steps"] for one in account["deaths"])
    return account


def of_steps(parts: dict[str, float]) -> float:
    others = ("start", "tracing", "validation", "restoring", "script", "end")
    return sum(seconds for part, seconds in parts.items() if part not in others)


def num_again(folder: Path) -> int:
    done = [line.split()[1] for line in (folder / "steps").read_text().splitlines()]
    return len(done) - len({*done})


@pytest.mark.proof
def test_two_kills_a_standby_and_two_fits(tmp_path: Path) -> None:
    options = ("--max-restarts", "2", "--standby", "--snapshot-dir", "kept", "--snapshot-every", "4")
    ended = run(tmp_path, *options, str(HERE / "accounted.py"), "1:7:1", "2:19:0")
    assert ended.code == 0, ended.output
    account = checked_account(tmp_path, ended)
    first, second = account["deaths"]
    assert (first["step"], second["step"]) == (7, 19)
    assert first["reason"].startswith("rank 1 was killed")
    assert second["reason"].startswith("rank 0 was killed")
    assert sum(death["num_steps"] for death in account["deaths"]) == num_again(tmp_path) > 0
    for death in account["deaths"]:
        assert {"detection", "restart", "restoring", "tracing"} <= death["seconds"].keys()
        assert death["seconds"]["detection"] >= 1.0  # whoever dies naps before
    parts = account["parts"]
    assert of_steps(parts) >= 0.8 * 24 * STEP_SECONDS
    assert parts["callbacks"] >= 0.4 * 24 * STEP_SECONDS  # what a killed chief had not told, up to a second, is "steps"
    assert parts["validation"] >= 4 * VALIDATION_SECONDS
    assert parts["script"] >= 2 * SCRIPT_SECONDS
    assert {"start", "tracing", "end"} <= parts.keys()
    [line] = [line for line in ended.lines("paceline: ") if "2 deaths" in line]
    assert f"{num_again(tmp_path)} steps again" in line


@pytest.mark.proof
def test_a_job_that_is_preempted_has_no_death(tmp_path: Path) -> None:
    options = ("--snapshot-dir", "kept", "--snapshot-every", "60s")
    ended = run(tmp_path, *options, str(HERE / "accounted.py"), "1:7:told", workers=1)
    assert ended.code == 75, ended.output
    account = checked_account(tmp_path, ended)
    assert account["deaths"] == []
    assert account["parts"]["end"] > 0
    assert of_steps(account["parts"]) >= 0.8 * 7 * STEP_SECONDS


def test_a_job_that_fails_for_good_ends_with_a_death(tmp_path: Path) -> None:
    ended = run(tmp_path, str(HERE / "accounted.py"), "1:7:0", workers=1)
    assert ended.code == 137, ended.output
    [death] = checked_account(tmp_path, ended)["deaths"]
    assert (death["step"], death["num_steps"]) == (7, 0)
    assert death["seconds"]["detection"] >= 1.0
    assert " death" not in "".join(ended.lines("paceline: ")[-1:])
