"""Worlds of the `mpiexec` that comes with MPI's wheel: who is who, and ends that end all."""

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from paceline.cluster.job_directory import job_directory
from programs import Ended, Program, start_python

pytestmark = pytest.mark.processes

RANK = Path(__file__).with_name("site_mpi_rank.py")
MPIEXEC = shutil.which("mpiexec", path=sysconfig.get_path("scripts"))


def told(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("rank*"))]


def run(size: int, how: str, folder: Path) -> Ended:
    """Runs the ranks to their end; their directory on this host must be gone then."""
    assert MPIEXEC, "the mpich wheel has one"
    ended = Program([MPIEXEC, "-n", str(size), sys.executable, RANK, how], folder, {}).ended()
    jobs = {line.rpartition(" ")[2] for line in told(folder)}
    assert not any(job_directory(job).exists() for job in jobs)
    return ended


@pytest.mark.parametrize(("size", "how"), [pytest.param(2, "well", marks=pytest.mark.proof), (4, "well"), (2, "early")])
def test_ranks_know_each_other(size: int, how: str, tmp_path: Path) -> None:
    ended = run(size, how, tmp_path)
    assert ended.code == 0, ended.output
    total = size * (size + 1) // 2
    assert [line.partition(" Shared")[0] for line in told(tmp_path)] == [
        f"rank {rank} of {size}, local {rank} of {size}: {total}" for rank in range(size)
    ]
    assert len({line.partition("SharedMemoryGroup ")[2] for line in told(tmp_path)}) == 1, "one seed, one job"


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("raises", 1, "RuntimeError: this rank gives up"),
        pytest.param("holds", 1, "RuntimeError: this rank gives up", marks=pytest.mark.proof),
        ("exits", 7, "last words"),
    ],
)
def test_a_rank_that_fails_ends_the_job(how: str, code: int, said: str, tmp_path: Path) -> None:
    ended = run(3, how, tmp_path)
    assert ended.code == code, ended.output
    assert said in ended.output
    assert ("last words" in ended.output) == (how != "holds")


def test_ranks_with_other_versions_are_refused(tmp_path: Path) -> None:
    ended = run(2, "differs", tmp_path)
    assert ended.code == 78, ended.output
    assert "Keras is 3.0 on rank 1, 3.15 on rank 0" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    "variables",
    [
        {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "4",
            "PMIX_RANK": "1",
            "PMIX_NAMESPACE": "prterun-n1-42@1",
        },
        {"PMI_RANK": "1", "PMI_SIZE": "4"},  # another MPI's, whose connection this one does not know
    ],
    ids=["Open MPI", "no connection"],
)
def test_worlds_of_one_rank_are_refused(variables: dict[str, str], tmp_path: Path) -> None:
    program = start_python(RANK, "well", folder=tmp_path, variables=variables)
    ended = program.ended()
    assert ended.code == 78, ended.output
    assert not list(Path("/dev/shm").glob(f"mpich_shm_{program.process.pid:x}_*"))
    assert "started 4 processes" in ended.output
    assert "reports rank 0 of 1" in ended.output
    assert "mpiexec" in ended.output
    assert "[mpi-world]" in ended.output
    assert "Traceback" not in ended.output
