"""What MPI launchers announce; environments as they make them."""

import pytest

from paceline.cluster.mpi_launchers import announced_by_mpi
from paceline.errors import ConfigurationError

HYDRA = {"MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1", "PMI_FD": "11", "PMI_RANK": "1", "PMI_SIZE": "2"}
SLURM_PMI2 = {"PMI_FD": "14", "PMI_JOBID": "4711.0", "PMI_RANK": "3", "PMI_SIZE": "4", "SLURM_PROCID": "3"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "3",
    "PMIX_NAMESPACE": "prterun-n1-4242@1",
    "PMIX_RANK": "1",
}


@pytest.mark.parametrize(
    ("variables", "launcher", "rank", "size"),
    [
        (HYDRA, "the MPI launcher", 1, 2),
        (SLURM_PMI2, "the MPI launcher", 3, 4),
        (OPEN_MPI, "Open MPI's mpirun", 1, 3),
        (OPEN_MPI | {"PMI_RANK": "0", "PMI_SIZE": "1"}, "Open MPI's mpirun", 1, 3),
    ],
)
def test_reads_what_launchers_set(variables: dict[str, str], launcher: str, rank: int, size: int) -> None:
    announced = announced_by_mpi(variables)
    assert announced is not None
    assert (announced.launcher, announced.rank, announced.size) == (launcher, rank, size)
    assert [variables[name] for name in announced.variables] == [str(rank), str(size)]


SLURM_STEP = SLURM_PMI2 | {"SLURM_STEP_TASKS_PER_NODE": "1,3", "SLURM_NODEID": "1"}


@pytest.mark.parametrize(
    ("variables", "num_local"),
    [
        pytest.param(HYDRA, 2, id="mpiexec"),
        pytest.param(HYDRA | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_NODEID": "0"}, 2, id="mpiexec's proxies"),
        pytest.param(OPEN_MPI, 1, id="Open MPI"),
        pytest.param(SLURM_STEP, 3, id="Slurm"),
        pytest.param(SLURM_STEP | {"SLURM_NODEID": "2"}, None, id="no such node"),
        pytest.param(SLURM_STEP | {"SLURM_STEP_TASKS_PER_NODE": "x"}, None, id="no counts"),
        pytest.param(SLURM_PMI2, None, id="nobody says"),
        pytest.param(HYDRA | {"MPI_LOCALNRANKS": "3"}, None, id="more than there are"),
        pytest.param(HYDRA | {"MPI_LOCALNRANKS": "0"}, None, id="none"),
        pytest.param(HYDRA | {"MPI_LOCALNRANKS": "two"}, None, id="no number"),
    ],
)
def test_how_many_ranks_are_on_this_host(variables: dict[str, str], num_local: int | None) -> None:
    announced = announced_by_mpi(variables)
    assert announced is not None
    assert announced.num_local == num_local


@pytest.mark.parametrize("variables", [{}, {"PMI_FD": "9"}, {"SLURM_PROCID": "0"}, {"PMIX_RANK": "0"}])
def test_no_launcher(variables: dict[str, str]) -> None:
    assert announced_by_mpi(variables) is None


@pytest.mark.parametrize(("rank", "size"), [("2", "2"), ("x", "2"), ("0", "0"), ("-1", "2"), ("0", "9" * 5000)])
def test_wrong_numbers_are_told(rank: str, size: str) -> None:
    with pytest.raises(ConfigurationError, match="PMI_RANK and PMI_SIZE"):
        announced_by_mpi({"PMI_RANK": rank, "PMI_SIZE": size})
