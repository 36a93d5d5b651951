"""``--events FILE`` of jobs on several hosts, which are processes of this machine: the head writes, for all."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.launcher.conftest import Job

pytestmark = pytest.mark.processes

HOST = socket.gethostname()
STEPS = """
from paceline import rank
from paceline.events import EpochEnded
from paceline.events.bus import bus
bus.emit(EpochEnded(rank(), epoch=0, step=3, seconds=0.5, logs={"loss": float("nan"), "mae": 1.5}))
"""

Start = Callable[..., Job]


def check(path: Path) -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = [line["event"] for line in lines]
    assert (kinds[0], kinds[-3:]) == ("JobBegan", ["GenerationEnded", "JobAccount", "JobEnded"])
    assert [(line["host"], line["num_workers"]) for line in lines if line["event"] == "HostJoined"] == [(HOST, 1)] * 2
    for rank in (0, 1):
        own = [line for line in lines if line.get("rank") == rank]
        assert [line["event"] for line in own] == ["WorkerStarted", "EpochEnded", "RankEnded"]
        assert {line["host"] for line in own} == {HOST}
        assert own[1]["logs"] == {"loss": None, "mae": 1.5}


def test_over_ssh(paceline_run: Start, fake_ssh: list[str], tmp_path: Path) -> None:
    finished = paceline_run(STEPS, "--hosts", "b:1,c:1", *fake_ssh, "--events", "events.jsonl").finish()
    assert finished.code == 0, finished.stderr
    check(tmp_path / "events.jsonl")


def test_the_same_command_on_each_host(paceline_run: Start, free_port: int, tmp_path: Path) -> None:
    """Each is given the option, and node 0 alone writes."""
    options = ("--nnodes", "2", "--rendezvous", f"127.0.0.1:{free_port}", "-n", "1", "--start-timeout", "30")
    jobs = [
        paceline_run(STEPS, *options, "--node-rank", str(rank), "--events", f"events{rank}.jsonl") for rank in (0, 1)
    ]
    for finished in [job.finish() for job in jobs]:
        assert finished.code == 0, finished.stderr
    check(tmp_path / "events0.jsonl")
    assert not (tmp_path / "events1.jsonl").exists()
