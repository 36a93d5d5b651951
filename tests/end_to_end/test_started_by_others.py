"""``mpiexec -n N python train.py`` and ``srun python train.py``: no launcher of ours, no TF_CONFIG."""

import shutil
import socket
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.cluster.slurm_step import first_port
from programs import Ended, Program, run_python, start_python

pytestmark = [pytest.mark.processes]

SCRIPT = Path(__file__).with_name("started_by_others.py")
MPIEXEC = shutil.which("mpiexec", path=sysconfig.get_path("scripts"))
RELATIVE = 1e-9


def mpiexec(size: int, folder: Path, how: str) -> Ended:
    assert MPIEXEC, "the mpich wheel has one"
    return Program([MPIEXEC, "-n", str(size), sys.executable, SCRIPT, folder, how], folder, {}).ended()


def slurm_job_with_free_ports() -> int:
    """The number of a job whose first two ports on this host are free, which other tests are unlikely to take."""
    started_at = time.monotonic_ns() % 350
    for job in range(started_at, started_at + 350):
        try:
            return _checked(job)
        except OSError:
            continue
    raise AssertionError("no block of ports is free")


def _checked(job: int) -> int:
    for port in (first_port(job, 0), first_port(job, 0) + 1):
        socket.create_server(("127.0.0.1", port)).close()
    return job


def srun(size: int, folder: Path, how: str) -> list[Program]:
    """What ``srun -n SIZE`` on this host starts, at a site whose default is ``--mpi=pmix``."""
    job = str(slurm_job_with_free_ports())
    step = {
        "SLURM_JOB_ID": job,
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_TASKS_PER_NODE": str(size),
        "SLURM_DISTRIBUTION": "block",
        "SLURM_NODEID": "0",
        "PMIX_NAMESPACE": f"slurm.pmix.{job}.0",
    }
    return [
        start_python(
            SCRIPT,
            folder,
            how,
            folder=folder,
            variables=step | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "PMIX_RANK": str(rank)},
        )
        for rank in range(size)
    ]


def compare(
    folder: Path, how: str, saved: Callable[..., dict[str, Any]], one_worker: Callable[[str], dict[str, Any]]
) -> None:
    """Both ranks have the numbers of one worker."""
    chief, *others = (saved(folder, f"by_others_{how}", rank) for rank in range(2))
    for other in others:
        for name in ("numpy", "tensorflow", "weights", "loss", "accuracy"):
            np.testing.assert_array_equal(other[name], chief[name])
    for name in ("weights", "loss", "accuracy"):
        np.testing.assert_allclose(chief[name], one_worker("one_worker")[name], rtol=RELATIVE)


@pytest.mark.proof
def test_mpiexec_computes_what_one_computes(tmp_path: Path, saved, one_worker) -> None:
    ended = mpiexec(2, tmp_path, "well")
    assert ended.code == 0, ended.output
    compare(tmp_path, "well", saved, one_worker)


@pytest.mark.proof
def test_srun_computes_what_one_computes(tmp_path: Path, saved, one_worker) -> None:
    for ended in [program.ended() for program in srun(2, tmp_path, "well")]:
        assert ended.code == 0, ended.output
    compare(tmp_path, "well", saved, one_worker)


@pytest.mark.proof
def test_under_mpiexec_a_rank_that_fails_ends_the_job_with_its_traceback(tmp_path: Path) -> None:
    ended = mpiexec(2, tmp_path, "failing")
    assert ended.code == 1, ended.output
    assert "rank 0 goes on" in ended.output
    assert "RuntimeError: this rank gives up" in ended.output


def test_under_srun_a_rank_that_fails_after_exact_steps_ends_the_others(tmp_path: Path, saved, one_worker) -> None:
    waiting, failing = srun(2, tmp_path, "failing")
    failed = failing.ended()
    stopped = waiting.ended()
    assert failed.code == 1
    assert "RuntimeError: this rank gives up" in failed.output
    assert stopped.code != 0
    assert "rank 1" in stopped.output.strip().splitlines()[-1], stopped.output
    compare(tmp_path, "failing", saved, one_worker)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, ["started 2 processes", "reports rank 0 of 1"]),
        (
            {
                "PMI_RANK": "0",
                "PMI_SIZE": "1",
                "SLURM_JOB_ID": "7",
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "4",
                "SLURM_STEP_NODELIST": "localhost",
                "SLURM_STEP_TASKS_PER_NODE": "4",
            },
            ["PMI_SIZE=1", "Slurm started 4"],
        ),
    ],
    ids=["no connection", "mpiexec -n 1 in each of srun's four"],
)
def test_jobs_of_one_rank_are_refused(variables: dict[str, str], said: list[str], tmp_path: Path) -> None:
    ended = run_python(SCRIPT, tmp_path, "well", folder=tmp_path, variables=variables)
    assert ended.code == 78, ended.output
    assert "Traceback" not in ended.output
    for part in said:
        assert part in ended.output


@pytest.mark.proof
def test_a_taken_port_of_a_step_is_told(tmp_path: Path) -> None:
    job = slurm_job_with_free_ports()
    with socket.create_server(("127.0.0.1", first_port(job, 0))):
        variables = {
            "SLURM_JOB_ID": str(job),
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": "0",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_TASKS_PER_NODE": "2",
        }
        ended = run_python(SCRIPT, tmp_path, "well", folder=tmp_path, variables=variables)
    assert ended.code == 78, ended.output
    assert "Slurm gives this process the address localhost:" in ended.output
    assert "start the step again" in ended.output
