"""The timeline: nothing that a viewer would drop, ranks meet where they met, whatever their clocks say."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.made_jobs import JOB_ID, MICROSECOND, MILLISECOND, SECOND, MadeJob

from paceline.events.head_events import HostLost, RankEnded
from paceline.events.worker_events import SnapshotTaken, StragglerFound
from paceline.observe.step_files import OPERATION, Header, head_of, name_of
from paceline.report.host_clocks import HostClock, Sample
from paceline.report.trace import trace_lines, write_trace

Track = tuple[int, int]


def trace_of(job: Any, path: Path) -> dict[str, Any]:
    write_trace(job, path)
    trace: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return trace


def slices(trace: dict[str, Any]) -> dict[Track, list[dict[str, Any]]]:
    by_track: dict[Track, list[dict[str, Any]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            by_track[event["pid"], event["tid"]].append(event)
    return by_track


def assert_nested(events: list[dict[str, Any]]) -> None:
    """As a viewer reads a track: in the order of the file, by time; a slice lies within the open ones, or behind."""
    ends: list[int] = []
    before = -1
    for event in events:
        began, ended = event["ts"], event["ts"] + event["dur"]
        assert isinstance(began, int)
        assert isinstance(ended, int)
        assert began >= before, "a viewer sorts by time, and would put a step behind its first phase"
        assert ended > began
        before = began
        while ends and ends[-1] <= began:
            ends.pop()
        assert not ends or ended <= ends[-1], f"{event} crosses the end of another slice"
        ends.append(ended)


@pytest.mark.parametrize(
    "ahead",
    [
        pytest.param(lambda _: 0, id="one clock"),
        pytest.param(lambda _: 3 * SECOND, id="three seconds ahead"),
        pytest.param(lambda time: -3 * SECOND + time // 20_000, id="behind and faster"),
    ],
)
def test_ranks_meet_within_the_error_that_is_stated_and_slices_nest(tmp_path: Path, ahead: Any) -> None:
    made = MadeJob(tmp_path, ["a", "a", "b", "b"], {"b": ahead})
    for _ in range(20):
        made.measure()
        made.steps(20, slow=1, messages=2)
        made.write()
    made.measure()
    job = made.end()
    trace = trace_of(job, tmp_path / "trace.json.gz")
    tracks = slices(trace)
    assert len(tracks) == 4
    error_ns = job.error_of("b")
    assert error_ns is not None
    assert 200_000 <= error_ns < 3 * MILLISECOND
    assert trace["otherData"]["clocks"]["a"] == "the launcher's"
    assert "±0.2" in trace["otherData"]["clocks"]["b"]
    met = defaultdict(list)
    for events in tracks.values():
        assert_nested(events)
        assert len([event for event in events if event["name"].startswith("step ")]) == made.step
        messages = [event for event in events if event["name"] in ("first message", "messages")]
        assert len(messages) == 3 * made.step
        for number, event in enumerate(messages):
            met[number].append(event["ts"] + event["dur"])
    # Twice: the clocks of two ranks; a microsecond: they are whole ones.
    apart = max(max(times) - min(times) for times in met.values())
    assert apart <= 2 * error_ns / 1000 + 2


def test_without_a_measurement_the_clocks_of_the_hosts_count_and_the_error_is_not_known(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, ["a", "b"], {"b": lambda _: 7 * SECOND})
    made.steps(3)
    job = made.end()
    assert job.error_of("b") is None
    assert trace_of(job, tmp_path / "trace.json.gz")["otherData"]["clocks"]["b"] == "not measured"


def test_a_step_and_rank_takes_at_most_80_bytes(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, ["a"] * 2)
    made.steps(2000)
    job = made.end()
    write_trace(job, tmp_path / "trace.json.gz")
    assert (tmp_path / "trace.json.gz").stat().st_size <= 80 * 2 * made.step


def test_what_has_happened_stands_beside_the_rank_that_it_happened_to(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, ["a", "b"], {"b": lambda _: 0})
    made.measure()
    made.steps(3)
    made.tell(SnapshotTaken(0, 3, "step-3", 1000))
    made.tell(StragglerFound(0, 1, 2.0, 0.3, "", "rank 1 computes 2 times as long"))
    made.tell(RankEnded(1, -9, ""))
    made.tell(HostLost((1,), "b", "is gone"))
    trace = trace_of(made.end(), tmp_path / "trace.json.gz")
    threads = {
        event["args"]["name"]: (event["pid"], event["tid"])
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    seen = {event["name"]: (event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] == "i"}
    assert seen["snapshot of step 3"] == threads["rank 0"]
    assert seen["straggler"] == seen["killed (SIGKILL)"] == threads["rank 1"]
    [job] = [one["pid"] for one in trace["traceEvents"] if one.get("args", {}).get("name", "").startswith("job ")]
    assert seen["host b is lost"][0] == job
    assert all(event["pid"] > 0 and event["tid"] > 0 for event in trace["traceEvents"]), "0 is a kernel's idle process"


def test_steps_of_which_only_sums_are_left_are_in_blocks_before_the_others(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, ["a"] * 2, world_size=100)  # of so many ranks each keeps fewer single phases
    for _ in range(26):
        made.steps(100)
        made.write()
    job = made.end()
    for events in slices({"traceEvents": [json.loads(line) for line in trace_lines(job)]}).values():
        assert_nested(events)
        names = [event["name"] for event in events]
        blocks = [name for name in names if name.startswith("steps ")]
        single = [int(name.split()[1]) for name in names if name.startswith("step ")]
        assert blocks[0].startswith("steps 1–")
        assert 800 <= len(single) <= 1_800
        assert single == list(range(single[0], made.step + 1))
        assert names.index(f"step {single[0]}") > names.index(blocks[-1])


def test_records_of_a_rank_that_was_killed_while_it_wrote_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, ["a", "a"])
    made.steps(50)
    made.write(is_last=True)
    for name in ("0001-1.steps", "0001-1.blocks"):
        path = tmp_path / "ranks" / name
        path.write_bytes(path.read_bytes()[:-5])
    (tmp_path / "ranks" / "0002-1.steps").write_bytes(b'{"job_')
    tracks = slices(trace_of(made.end(), tmp_path / "trace.json.gz"))
    assert len(tracks) == 2


def test_between_measurements_a_clock_is_followed_and_beyond_them_it_may_drift() -> None:
    clock = HostClock([Sample(0, 1000, 10), Sample(1_000_000, 3000, 20)])
    times = [clock.here(there) for there in range(0, 1_100_000, 777)]
    assert all(second > first for first, second in pairwise(times))
    assert clock.here(1000) == 0
    assert clock.here(1_003_000) == 1_000_000
    assert abs(clock.here(502_000) - 500_000) <= 1
    assert clock.error_ns(1000, 1_003_000) == 20
    assert clock.error_ns(1000, 2_003_000) == 20 + 100


def test_operations_of_a_rank_stand_in_a_process_of_its_own_without_those_that_cross(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, ["a", "b"], {"b": lambda _: 3 * SECOND})
    made.measure()
    made.steps(3)
    began = made.times[1] + 3 * SECOND  # by the clock of host b
    names = ("main", 'a "quoted" step', "MatMul", "Relu")
    rows = [
        [0, 1, began, began + 100 * MICROSECOND],
        [0, 3, began + 60 * MICROSECOND, began + 120 * MICROSECOND],  # crosses the end of the one that was longer
        [0, 2, began + 10 * MICROSECOND, began + 50 * MICROSECOND],
    ]
    header = Header(JOB_ID, 1, 1, "b", names, len(OPERATION), began, 0)
    (tmp_path / "ranks" / name_of(1, 1, "operations")).write_bytes(head_of(header) + np.array(rows, "<i8").tobytes())
    trace = trace_of(made.end(), tmp_path / "trace.json.gz")
    [process] = [
        event["pid"]
        for event in trace["traceEvents"]
        if event["name"] == "process_name" and event["args"]["name"] == "rank 1: TensorFlow's operations"
    ]
    of_process = {track: events for track, events in slices(trace).items() if track[0] == process}
    [(track, events)] = of_process.items()
    assert_nested(events)
    assert [event["name"] for event in events] == ['a "quoted" step', "MatMul"]
    here = (made.times[1] - made.began_at) // 1000
    assert abs(events[0]["ts"] - here) <= 400, "on the launcher's clock, within the error of the measurement"
    assert not any(events for other, events in slices(trace).items() if other[1] == track[1] and other != track)
