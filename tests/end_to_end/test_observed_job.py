"""`paceline run --observe`: the same bits, a timeline of all ranks, and a full disk that costs one line."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from programs import run_python, run_workers
from small_disks import small_disk

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parent / "observed_job.py"
STEPS = 90
LIMIT_SECONDS = 120


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, 16 << 10) as disk:
        yield disk


def trace_of(folder: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    return events


def weights(folder: Path, rank: int) -> list[bytes]:
    with np.load(folder / f"{rank}.npz") as archive:
        return [archive[name].tobytes() for name in sorted(archive)]


def trained(folder: Path, *options: str) -> tuple[list[list[bytes]], list[str]]:
    """Each rank's weights, and what was said of the records."""
    ended = run_workers(2, "--seed", "1", *options, SCRIPT, folder / "weights", folder=folder)
    assert ended.code == 0, ended.output
    told = [line for line in ended.output.splitlines() if "[observe]" in line]
    return [weights(folder / "weights", rank) for rank in range(2)], told


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[list[bytes]]:
    """Each rank's weights without records."""
    return trained(tmp_path_factory.mktemp("plain"))[0]


@pytest.mark.proof
def test_a_full_disk_costs_one_line_and_no_bit(tmp_path: Path, full_disk: Path, plain: list[list[bytes]]) -> None:
    found, told = trained(tmp_path, "--observe", str(full_disk))
    assert found == plain
    assert len(told) == 1, told


def test_weights_are_the_same_bits_and_each_step_of_each_rank_is_in_the_timeline(
    tmp_path: Path, plain: list[list[bytes]]
) -> None:
    assert trained(tmp_path, "--observe", "seen") == (plain, [])
    events = trace_of(tmp_path / "seen")
    steps = Counter(event["tid"] for event in events if event["name"].startswith("step "))
    assert len(steps) == 2
    assert all(number == STEPS - 1 for number in steps.values()), "the first one is traced, which is start"
    assert {"first message", "compute", "messages", "start", "validation"} <= {event["name"] for event in events}
    assert [event["name"] for event in events if event["name"].startswith("epoch ")] == [
        f"epoch {epoch} ended" for epoch in range(3)
    ]
    ran = run_python("-m", "paceline", "report", "seen", folder=tmp_path)
    assert ran.code == 0, ran.output
    page = (tmp_path / "seen" / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "What helps" in page or "Nothing stands out" in page
    runs = sorted(path.name for path in (tmp_path / "seen" / "tensorboard").iterdir())
    assert runs == ["rank 0", "rank 1"]


@pytest.mark.proof
def test_operations_of_the_steps_of_a_timeline_are_those_of_each_rank_in_these_steps(
    tmp_path: Path, plain: list[list[bytes]]
) -> None:
    assert trained(tmp_path, "--observe", "seen", "--timeline", "40:44") == (plain, [])
    events = trace_of(tmp_path / "seen")
    own = {
        event["pid"]: int(event["args"]["name"].split()[1].rstrip(":"))
        for event in events
        if event["name"] == "process_name" and event["args"]["name"].endswith("TensorFlow's operations")
    }
    assert sorted(own.values()) == [0, 1]
    ranks = {
        event["tid"]: int(event["args"]["name"].split()[1])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"].startswith("rank ")
    }
    for process, rank in own.items():
        steps = [
            event
            for event in events
            if ranks.get(event["tid"]) == rank and event["name"] in {f"step {number}" for number in range(40, 45)}
        ]
        operations = [event for event in events if event["ph"] == "X" and event["pid"] == process]
        products = [event for event in operations if "MatMul" in event["name"]]
        assert len(products) >= 5 * 3, "two layers forward, and one and a half backward, of each of five steps"
        began, ended = min(one["ts"] for one in steps), max(one["ts"] + one["dur"] for one in steps)
        assert all(began - 1000 <= one["ts"] and one["ts"] + one["dur"] <= ended + 1000 for one in products)


@pytest.mark.proof
def test_a_timeline_of_steps_that_are_not_made_says_so_once(tmp_path: Path, plain: list[list[bytes]]) -> None:
    weights_of_ranks, told = trained(tmp_path, "--observe", "seen", "--timeline", "400")
    assert weights_of_ranks == plain
    [line] = told
    assert "has not made step 400" in line


def test_a_rank_that_is_killed_leaves_its_steps_and_its_end(tmp_path: Path) -> None:
    ended = run_workers(2, "--observe", "seen", SCRIPT, tmp_path / "weights", "dies", folder=tmp_path)
    assert ended.code != 0
    events = trace_of(tmp_path / "seen")
    [killed] = [event for event in events if event["name"] == "killed (SIGKILL)" and event["args"]["rank"] == 1]
    of_rank = [event for event in events if event["ph"] == "X" and event["tid"] == killed["tid"]]
    assert of_rank
    assert max(event["ts"] + event["dur"] for event in of_rank) <= killed["ts"] + 1_000_000
