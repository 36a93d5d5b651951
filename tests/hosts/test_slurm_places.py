"""A real Slurm of two nodes: what it says to its tasks is read rightly, and ``--mpi=pmi2`` is a way into MPI."""

import json
import sys
from pathlib import Path

import pytest
from lab import TCP_ONLY
from slurm_site import SlurmSite

pytestmark = pytest.mark.processes

PLACE = Path(__file__).with_name("slurm_place_rank.py")
MPI_RANK = Path(__file__).parents[1] / "comm" / "site_mpi_rank.py"


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ("-N 1 -n 2", "aa"),
        ("-N 2 -n 2", "ab"),
        ("-N 2 -n 4", "aaab"),  # Slurm's own choice: the first node is filled
        ("-N 2 -n 4 --ntasks-per-node=2", "aabb"),
        ("-N 2 -n 4 -m cyclic", "abaa"),
        ("-N 2 -n 6 -m plane=2", "aabbaa"),
    ],
)
def test_every_task_finds_the_same_places(slurm: SlurmSite, options: str, nodes: str, tmp_path: Path) -> None:
    ended = slurm.run(["srun", *options.split(), sys.executable, PLACE], folder=tmp_path)
    assert ended.code == 0, ended.output
    told = [json.loads((tmp_path / f"place{rank}").read_text()) for rank in range(len(nodes))]
    assert all(addresses == told[0] for addresses in told)
    assert len(set(told[0])) == len(nodes)
    assert [address.partition(":")[0] for address in told[0]] == [{"a": "alpha", "b": "beta"}[node] for node in nodes]


def test_a_batch_script_is_no_step_but_what_it_starts_with_srun_is(slurm: SlurmSite, tmp_path: Path) -> None:
    batch, log = tmp_path / "job.sh", tmp_path / "log"
    batch.write_text(f"#!/bin/sh\n{sys.executable} {PLACE} && srun {sys.executable} {PLACE}\n")
    ended = slurm.run(["sbatch", "--wait", f"--output={log}", "-N", "2", "-n", "2", batch], folder=tmp_path)
    assert ended.code == 0, f"{ended.output}{log.read_text() if log.exists() else ''}"
    assert "tasks: 2, nodes: 2" in (tmp_path / "hint").read_text()
    assert (tmp_path / "place0").read_text() == (tmp_path / "place1").read_text()


def test_srun_with_pmi2_is_the_world_of_mpi(slurm: SlurmSite, tmp_path: Path) -> None:
    command = ["srun", "--mpi=pmi2", "-N", "2", "-n", "4", "--ntasks-per-node=2", sys.executable, MPI_RANK, "well"]
    ended = slurm.run(command, folder=tmp_path, variables=TCP_ONLY)
    assert ended.code == 0, ended.output
    for rank in range(4):
        told = (tmp_path / f"rank{rank}").read_text()
        assert told.startswith(f"rank {rank} of 4, local {rank % 2} of 2: 10 MpiGroup ")


def test_under_pmi2_a_rank_that_fails_ends_the_step(slurm: SlurmSite, tmp_path: Path) -> None:
    command = ["srun", "--mpi=pmi2", "-N", "2", "-n", "2", sys.executable, MPI_RANK, "raises"]
    ended = slurm.run(command, folder=tmp_path, variables=TCP_ONLY)
    assert ended.code != 0
    assert "RuntimeError: this rank gives up" in ended.output
