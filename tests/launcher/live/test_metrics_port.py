"""Prometheus's text of a job, scraped from loopback."""

import builtins
import socket
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from paceline.events.head_events import GenerationBegan, WorkerStarted
from paceline.events.worker_events import EpochEnded, StepDone, StepsTimed
from paceline.launcher.live.job_state import JobState
from paceline.launcher.live.job_status import JobStatus
from paceline.launcher.live.metrics_port import MetricsPort, families_of
from ports import HoldPorts

LIMIT_SECONDS = 60


def status(events: bool = True) -> JobStatus:
    state = JobState("ab12", "train.py --password x", "a", 9, max_restarts=0, began_at=0.0)
    if events:
        state.hear(GenerationBegan(1, 1), 0.0)
        state.hear(WorkerStarted(0, "a", 10, "worker 0"), 0.0)
        state.hear(EpochEnded(0, 0, 10, 2.0, {"loss": 0.5, "auc": None}), 1.0)
        state.hear(StepDone(0, 12, 1), 1.0)
        state.hear(StepsTimed(0, 10, 0.04, {"compute": 0.75, "waiting": 0.25}, None, False, "x"), 1.0)
    return state.status(3.0)


def refuse(line: str) -> None:
    raise AssertionError(line)


def scraped(port: int) -> Mapping[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_SECONDS) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    assert "password" not in text
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_what_a_job_does_is_scraped(hold_ports: HoldPorts) -> None:
    (port,) = hold_ports(1)
    with MetricsPort(str(port), status, refuse):
        found = scraped(port)
    assert found['paceline_job{job="ab12",state="training"}'] == 1
    assert found['paceline_worker{host="a",process="worker 0",state="training"}'] == 1
    assert found['paceline_metric{name="loss"}'] == 0.5
    assert found['paceline_step_share{phase="waiting"}'] == 0.25
    assert (found["paceline_step"], found["paceline_epoch"], found["paceline_step_age_seconds"]) == (12, 1, 2)
    assert found["paceline_restarts_total"] == 0
    assert not any("auc" in name or "snapshot_step" in name or "waits_for" in name for name in found)
    with socket.socket() as asking:  # nothing listens any more
        assert asking.connect_ex(("127.0.0.1", port)) != 0


def test_a_port_that_is_taken_costs_a_line(hold_ports: HoldPorts) -> None:
    (port,) = hold_ports(1)
    told: list[str] = []
    with MetricsPort(str(port), status, refuse), MetricsPort(f"127.0.0.1:{port}", status, told.append):
        assert scraped(port)
    (line,) = told
    assert line.startswith(f"--metrics-port 127.0.0.1:{port} cannot be opened, and the job continues: ")
    assert line.endswith("[metrics-port]")


def test_without_the_library_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    told: list[str] = []
    with MetricsPort("9100", status, told.append):
        pass
    (line,) = told
    assert "Fix: pip install 'paceline[observe]' [metrics-port]" in line


def test_of_a_job_that_has_just_begun_little_is_known() -> None:
    families = families_of(status(events=False))
    assert {one.name: dict(one.values) for one in families}["step"] == {(): None}
    names = [one.name for one in families]
    assert len(names) == len(set(names))
