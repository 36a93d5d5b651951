"""Which scheduler's word counts."""

import pytest

from paceline.cli.job_settings import given_options, made_job
from paceline.cluster.schedulers import SCHEDULERS, Scheduler, may_be_scheduled, scheduled_place, why_alone
from paceline.cluster.slurm_step import slurm_place
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
EXAMPLES = {"Slurm": SLURM, "Kubernetes": KUBERNETES}
"""The second of two processes, or the first, of each scheduler."""


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda one: one.name)
def test_each_is_found_by_a_strategy_and_by_the_launcher(scheduler: Scheduler) -> None:
    variables = EXAMPLES[scheduler.name]
    assert may_be_scheduled({scheduler.marker: variables[scheduler.marker]})
    place = scheduled_place(variables)
    assert place is not None
    assert place.scheduler == scheduler
    assert place.cluster.world_size == 2
    program, options, environment = given_options("train.py", (), {}, variables)
    nodes = made_job(program, options, environment, pytest.fail).nodes
    assert nodes is not None
    assert (nodes.num_nodes, nodes.node_rank) == (2, place.cluster.rank_of(place.task))


def test_slurm_goes_before_kubernetes() -> None:
    place = scheduled_place(KUBERNETES | SLURM)
    assert place is not None
    assert (place.cluster, place.task) == slurm_place(SLURM)


def test_a_process_that_was_started_alone() -> None:
    assert scheduled_place({"PATH": "/bin", "SLURM_JOB_ID": "7"}) is None
    assert why_alone({"PATH": "/bin", "SLURM_JOB_ID": "7"}) is None
    assert "write `srun`" in str(why_alone({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}))


def test_a_broken_environment_is_not_passed_over() -> None:
    with pytest.raises(ConfigurationError):
        scheduled_place(KUBERNETES | SLURM | {"SLURM_PROCID": "2"})
