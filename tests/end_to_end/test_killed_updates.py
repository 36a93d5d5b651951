"""Ranks that are killed within updates of large weights; another number of workers goes on, to the same bits."""

import random
from pathlib import Path

import pytest

from programs import Ended, run_workers

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

JOB = Path(__file__).with_name("killed_updates.py")
KILLS_OF_A_CHAIN = 5
"""Ten chains: fifty kills."""


def _run(folder: Path, num_workers: int, kill: str) -> Ended:
    options = ("--snapshot-dir", folder / "snapshots", "--snapshot-every", "1")
    return run_workers(num_workers, *options, JOB, kill, folder=folder)


def _sum(ended: Ended) -> str:
    [line] = [line for line in ended.lines() if "sum " in line]
    return line.split("sum ")[1]


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _sum(run_workers(1, JOB, "-", folder=tmp_path_factory.mktemp("unharmed")))


@pytest.mark.proof
@pytest.mark.parametrize(
    ("seed", "num_kills"),
    [
        (0, 2),
        *((seed, KILLS_OF_A_CHAIN) for seed in range(1, 11)),
    ],
)
def test_kills_within_updates_leave_the_bits_of_an_unharmed_run(
    tmp_path: Path, unharmed: str, seed: int, num_kills: int
) -> None:
    draw = random.Random(seed)
    steps = [3 + 5 * number + draw.randrange(3) for number in range(num_kills)]  # of thirty
    for step in steps:
        num_workers = draw.choice((1, 2, 2, 3))
        kill = f"{draw.randrange(num_workers)},{step},{draw.random():.2f}"
        ended = _run(tmp_path, num_workers, kill)
        assert ended.code not in (0, 75), (num_workers, kill, ended.output)
        assert "SIGKILL" in ended.output, (num_workers, kill, ended.output)
    assert _sum(_run(tmp_path, draw.choice((1, 2, 3)), "-")) == unharmed
