"""A small part of ``make chaos``: each phase and each action in every check, and each job and rank in `make proof`."""

from itertools import product
from pathlib import Path

import pytest
from harness import Lab, last_lines
from schedules import ACTIONS, PHASES, Case, every_rank_of_replicas, subset

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

JOBS = ("all_callbacks", "all_layers")
CASES = [*subset(JOBS)]


def test_the_subset_is_pairwise() -> None:
    met = [(cell, case.job) for case in CASES for cell in case.cells]
    assert {(cell.phase, job) for cell, job in met} == {*product(PHASES, JOBS)}
    assert {(cell.action, job) for cell, job in met} == {*product(ACTIONS, JOBS)}
    assert {(cell.phase, cell.rank) for cell, _ in met} == {*product(PHASES, (0, 1))}
    assert {(cell.action, cell.rank) for cell, _ in met} == {*product(ACTIONS, (0, 1))}
    assert len({(cell.action, cell.phase) for cell, _ in met}) == len(PHASES) * len(JOBS), "no cell twice"


def test_every_check_meets_each_phase_and_each_action() -> None:
    assert {cell.phase for cell in CASES[0].cells} == {*PHASES}
    assert {cell.action for cell in CASES[0].cells} == {*ACTIONS}


@pytest.mark.parametrize(
    "case",
    [CASES[0], *(pytest.param(case, marks=pytest.mark.proof) for case in [*CASES[1:], every_rank_of_replicas()])],
    ids=lambda case: case.name,
)
def test_a_job_that_is_struck_again_and_again_ends_as_if_nothing_had_happened(case: Case, tmp_path: Path) -> None:
    verdict = Lab(tmp_path, deadline_seconds=250.0, hang_timeout_seconds=20.0).run(case)
    assert verdict.has_passed, f"{verdict.faults}\n{last_lines(verdict)}"
