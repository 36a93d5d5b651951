"""Which scheduler's word counts."""

import pytest

from paceline.cluster.slurm import slurm_place
from paceline.cluster.surroundings import OTHER_PORT, scheduled_place
from paceline.errors import ConfigurationError

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
}
KUBERNETES = {"JOB_COMPLETION_INDEX": "0", "PACELINE_NNODES": "2", "PACELINE_RENDEZVOUS": "job-0.pods:29500"}


def test_each_is_found_and_named() -> None:
    for variables, name in ((SLURM, "Slurm"), (KUBERNETES, "Kubernetes")):
        place = scheduled_place(variables)
        assert place is not None
        assert place.scheduler == name
        assert place.scheduler in OTHER_PORT
        assert place.cluster.world_size == 2


def test_slurm_goes_before_kubernetes() -> None:
    place = scheduled_place(KUBERNETES | SLURM)
    assert place is not None
    assert (place.cluster, place.task) == slurm_place(SLURM)


def test_a_process_that_was_started_alone() -> None:
    assert scheduled_place({"PATH": "/bin", "SLURM_JOB_ID": "7"}) is None


def test_a_broken_environment_is_not_passed_over() -> None:
    with pytest.raises(ConfigurationError):
        scheduled_place(KUBERNETES | SLURM | {"SLURM_PROCID": "2"})
