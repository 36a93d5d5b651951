"""The file of ``--events``."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigurationError
from paceline.events.head_events import GenerationBegan, HostLost, RankEnded, WorkerStarted
from paceline.events.json_lines import JsonLines
from paceline.events.worker_events import BatchDone, EpochEnded, StepDone

TWO_WORKERS_AND_A_SERVER = (
    GenerationBegan(1, num_workers=2),
    WorkerStarted(0, "a", 10, "worker 0"),
    WorkerStarted(1, "b", 11, "worker 1"),
    WorkerStarted(2, "a", 12, "ps 0"),
)


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def refuse(line: str) -> None:
    raise AssertionError(line)


def test_a_line_names_event_time_process_and_host(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with JsonLines(path, refuse, clock=lambda: 1234.56789) as sink:
        ends = (RankEnded(1, -9, ""), RankEnded(2, 1, "E: x"), HostLost((1,), "b", "?"))
        for event in (*TWO_WORKERS_AND_A_SERVER, *ends):
            sink(event)
        assert len(written(path)) == 7, "each line is there at once"
    began, *_, worker, server, host = written(path)
    assert began == {"event": "GenerationBegan", "time": 1234.568, "generation": 1, "num_workers": 2}
    assert worker == {
        "event": "RankEnded",
        "time": 1234.568,
        "process": "worker 1",
        "host": "b",
        "rank": 1,
        "exit_code": -9,
        "exception": "",
    }
    assert "rank" not in server
    assert (server["process"], server["host"], server["exception"]) == ("ps 0", "a", "E: x")
    assert (host["host"], host["ranks"]) == ("b", [1])


def test_of_steps_one_a_second_and_rank_and_everything_else(tmp_path: Path) -> None:
    now = [100.0]
    path = tmp_path / "events"
    with JsonLines(path, refuse, clock=lambda: now[0]) as sink:
        for event in TWO_WORKERS_AND_A_SERVER:
            sink(event)
        for step in range(1, 26):
            now[0] += 0.125
            for rank in (0, 1):
                sink(StepDone(rank, step, 0) if step % 2 else BatchDone(rank, step, 0, is_validation=True))
                sink(EpochEnded(rank, step, step, 0.1, {"loss": math.nan}))
    lines = written(path)
    for rank in (0, 1):
        own = [line for line in lines if line.get("rank") == rank]
        assert [line["step"] for line in own if line["event"] in ("StepDone", "BatchDone")] == [1, 9, 17, 25]
        ended = [line for line in own if line["event"] == "EpochEnded"]
        assert [line["epoch"] for line in ended] == list(range(1, 26))
        assert ended[0]["logs"] == {"loss": None}


def test_a_clock_that_is_set_back_loses_no_more_than_a_second(tmp_path: Path) -> None:
    now = [100.0]
    path = tmp_path / "events"
    with JsonLines(path, refuse, clock=lambda: now[0]) as sink:
        for now[0], step in ((100.0, 1), (50.0, 2), (50.5, 3), (51.0, 4)):
            sink(StepDone(0, step, 0))
    assert [line["step"] for line in written(path)] == [1, 2, 4]


def test_the_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "events"
    for generation in (1, 2):
        with JsonLines(path, refuse) as sink:
            sink(GenerationBegan(generation, num_workers=1))
    assert [line["generation"] for line in written(path)] == [1, 2]


@pytest.mark.parametrize("name", ["missing/events", "."])
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)--events.*\[events-file\]$"), JsonLines(tmp_path / name, refuse):
        pass


def test_a_full_disk_ends_the_file_and_is_told_of_once() -> None:
    told: list[str] = []
    with JsonLines(Path("/dev/full"), told.append) as sink:
        for event in TWO_WORKERS_AND_A_SERVER:
            sink(event)
    [line] = told
    assert "No space left on device" in line
    assert line.endswith("[events-file]")
