"""Every implementation of `Group` keeps the contract, `contract.py`'s cases, at all world sizes that differ."""

import functools
import json
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from contract import CASES, DESYNCHRONISED_CASES
from contract_checks import Case, bits

from paceline.comm.group import Group
from paceline.comm.solo import SoloGroup
from ranks import RankResult, run_ranks
from thread_groups import thread_groups

_SCRIPT = Path(__file__).with_name("contract_rank.py")
_DEADLINE_SECONDS = 280.0


@dataclass(frozen=True)
class World:
    """What ``contract_rank.py`` is asked to make, and the class that must come of it."""

    implementation: str
    size: int
    class_name: str
    tells_desynchronised_ranks: bool = False

    def __str__(self) -> str:
        return f"{self.implementation}-{self.size}"


@dataclass(frozen=True)
class Reports:
    """What the ranks of one world have written, and how they ended."""

    lines: list[list[dict[str, str]]]
    results: list[RankResult]

    @property
    def story(self) -> str:
        return "\n".join(map(str, self.results))


_WORLDS = [
    # Large arrays are read from the other ranks' memory; two ranks are what nearly every other test has.
    *[World("windows", size, "SharedMemoryGroup", True) for size in (1, 3)],
    # Where that is not allowed, up to three ranks each combines all, from four on a slice.
    *[World("windows_alone", size, "SharedMemoryGroup", True) for size in (3, 4)],
    World("raw_mpi", 1, "MpiGroup"),
    World("mpi_over_tcp", 2, "MpiGroup"),
    World("ring", 2, "TensorFlowGroup"),
]
_WORLDS_OF_PROOF = [
    # The algorithms of MPI and of TensorFlow: MPI has others for powers of two, of which the next one is.
    World("raw_mpi", 3, "MpiGroup"),
    World("ring", 3, "TensorFlowGroup"),
]


def _world_parameters() -> Iterator[Any]:
    for world in _WORLDS:
        yield pytest.param(world, id=str(world))
    for world in _WORLDS_OF_PROOF:
        yield pytest.param(world, id=str(world), marks=pytest.mark.proof)


@functools.cache
def _reports(world: World) -> Reports:
    """Runs the ranks once, whatever the number of tests that look at their reports."""
    with tempfile.TemporaryDirectory() as folder:
        results = run_ranks(_SCRIPT, world.size, folder, world.implementation, timeout_seconds=_DEADLINE_SECONDS)
        files = [Path(folder) / f"rank_{rank}" for rank in range(world.size)]
        lines = [
            [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else [] for file in files
        ]
    return Reports(lines, results)


def _case_parameters() -> Iterator[Any]:
    for parameter in _world_parameters():
        [world] = parameter.values
        for name in [*CASES, *(DESYNCHRONISED_CASES if world.tells_desynchronised_ranks else ())]:
            yield pytest.param(world, name, id=f"{world}-{name}", marks=parameter.marks)


@pytest.mark.processes
@pytest.mark.parametrize("world", list(_world_parameters()))
def test_ranks_come_up_as_asked_and_leave_in_order(world: World) -> None:
    reports = _reports(world)
    assert [lines[:1] for lines in reports.lines] == [[{"implementation": world.class_name}]] * world.size, (
        reports.story
    )
    assert all(result.exit_code == 0 and not result.timed_out for result in reports.results), reports.story


@pytest.mark.processes
@pytest.mark.parametrize(("world", "name"), list(_case_parameters()))
def test_processes(world: World, name: str) -> None:
    reports = _reports(world)
    mine = [line for lines in reports.lines for line in lines if line.get("case") == name]
    failures = [line["failure"] for line in mine if "failure" in line]
    assert not failures, "\n".join(failures)
    assert len(mine) == world.size, f"not run to the end on every rank; an earlier case failed\n{reports.story}"
    assert len({line["digest"] for line in mine}) == 1, "the ranks have received different bits"


def _run_in_threads(groups: list[Group], case: Case) -> None:
    barrier = threading.Barrier(len(groups))

    def run(group: Group) -> list[bytes]:
        barrier.wait(60)
        return [bits(array) for array in case(group)]

    with ThreadPoolExecutor(len(groups)) as pool:
        everyones = list(pool.map(run, groups))
    assert all(received == everyones[0] for received in everyones)


@pytest.mark.parametrize("size", [3])
@pytest.mark.parametrize("name", [*CASES, *DESYNCHRONISED_CASES])
def test_threads(name: str, size: int) -> None:
    _run_in_threads(list(thread_groups(size)), {**CASES, **DESYNCHRONISED_CASES}[name])


@pytest.mark.parametrize("name", [*CASES, *DESYNCHRONISED_CASES])
def test_solo(name: str) -> None:
    _run_in_threads([SoloGroup()], {**CASES, **DESYNCHRONISED_CASES}[name])
