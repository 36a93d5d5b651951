import json

import pytest

from paceline.cluster import environment
from paceline.cluster.communication import Communication, communication, refuse_different
from paceline.cluster.job_options import JobOptions
from paceline.cluster.launched import WorkerIdentity, launched_identity
from paceline.cluster.option_sources import users_variables
from paceline.cluster.options import rows
from paceline.cluster.spec import WORKER, Address, ClusterSpec, Task
from paceline.cluster.tf_config import read_tf_config
from paceline.errors import ConfigurationError
from paceline.launcher.workers.host_resources import CoreShare
from paceline.launcher.workers.worker_environment import WorkerPlan, plan_workers, worker_environment

CLUSTER = ClusterSpec({WORKER: (Address("127.0.0.1", 2222), Address("127.0.0.1", 2223))})


def identity(rank: int) -> WorkerIdentity:
    return WorkerIdentity(
        task=Task(WORKER, rank),
        rank=rank,
        world_size=2,
        local_rank=rank,
        local_world_size=2,
        generation=1,
        job_id="ab12",
        seed=7,
    )


def variables_of(plan: WorkerPlan, inherited: dict[str, str], **told: str) -> dict[str, str]:
    return worker_environment(plan, CLUSTER, inherited, told)


def test_a_worker_reads_back_who_it_is():
    variables = variables_of(WorkerPlan(identity(1), CoreShare((2, 3), 2), None), {"HOME": "/home/me"})
    assert launched_identity(variables) == identity(1)
    found = read_tf_config(variables)
    assert found is not None
    spec, task = found
    assert spec.as_dict() == CLUSTER.as_dict()
    assert spec.rank_of(task) == 1
    assert variables["HOME"] == "/home/me"
    assert variables[environment.CPUS] == "2,3"
    assert variables["OMP_NUM_THREADS"] == variables["TF_NUM_INTRAOP_THREADS"] == "2"
    assert variables["PYTHONUNBUFFERED"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in variables


def test_a_worker_is_told_what_other_launchers_tell_only_where_that_is_asked_for():
    """Data libraries read RANK and WORLD_SIZE, and gave each worker a share of the rows, which `fit` divided again."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    inherited = dict.fromkeys(names, "9")  # of a launcher around this one
    plan = WorkerPlan(identity(1), None, None)
    assert not {*names} & variables_of(plan, inherited).keys()
    variables = variables_of(plan, inherited, PACELINE_RANK_VARIABLES="1")
    assert [variables[name] for name in names] == ["1", "2", "1", "2"]


def test_the_users_own_thread_counts_stay_and_his_tf_config_goes():
    inherited = {"OMP_NUM_THREADS": "5", "TF_CONFIG": json.dumps({"cluster": {"worker": ["a:1"]}})}
    variables = variables_of(WorkerPlan(identity(0), CoreShare((0,), 1), None), inherited)
    assert variables["OMP_NUM_THREADS"] == "5"
    assert variables["TF_NUM_INTRAOP_THREADS"] == "1"
    assert json.loads(variables["TF_CONFIG"])["cluster"] == {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]}


def test_unbound_workers_get_neither_cores_nor_thread_counts():
    variables = variables_of(WorkerPlan(identity(0), None, None), {environment.CPUS: "7"})
    assert environment.CPUS not in variables
    assert "OMP_NUM_THREADS" not in variables


def test_gpus_go_by_local_rank_and_are_shared_in_turn():
    identities = [identity(0), identity(1)]
    assert [plan.gpu for plan in plan_workers(identities, None, ("3", "5"))] == ["3", "5"]
    assert [plan.gpu for plan in plan_workers(identities, None, ("GPU-a",))] == ["GPU-a", "GPU-a"]
    assert [plan.gpu for plan in plan_workers(identities, None, ())] == [None, None]
    variables = variables_of(WorkerPlan(identity(0), None, "5"), {"CUDA_VISIBLE_DEVICES": "3,5"})
    assert variables["CUDA_VISIBLE_DEVICES"] == "5"
    assert "PACELINE_COMMUNICATION" not in variables


def test_beside_parameter_servers_only_workers_have_cores_and_gpus():
    tasks = [Task("chief", 0), Task("worker", 0), Task("worker", 1), Task("ps", 0)]
    identities = [
        WorkerIdentity(
            task=task,
            rank=number,
            world_size=1,
            local_rank=task.index,
            local_world_size=2 if task.type == "worker" else 1,
            generation=1,
            job_id="ab12",
            seed=7,
        )
        for number, task in enumerate(tasks)
    ]
    shares = [CoreShare((0,), 1), CoreShare((1,), 1)]
    plans = plan_workers(identities, shares, ("3", "5"))
    assert [plan.identity for plan in plans] == identities
    assert [plan.cores for plan in plans] == [None, *shares, None]
    assert [plan.gpu for plan in plans] == ["", "3", "5", ""]
    assert [identity.serves for identity in identities] == [False, True, True, True]
    assert [identity.label for identity in identities] == ["chief", "worker 0", "worker 1", "ps 0"]


def test_agents_that_a_scheduler_gave_a_gpu_each_do_not_share_it():
    """``srun --ntasks-per-node=2 --gpus-per-task=1``: each agent has one worker, and sees one GPU, of the same name."""
    for rank in range(2):
        (plan,) = plan_workers([identity(rank)], None, ("0",), gpus_are_given=True)
        assert (plan.gpu, plan.gpu_is_shared) == ("0", False)
    (plan,) = plan_workers([identity(0)], None, ("0",))
    assert plan.gpu_is_shared
    assert all(
        plan.gpu_is_shared for plan in plan_workers([identity(0), identity(1)], None, ("0",), gpus_are_given=True)
    )


def test_hosts_of_which_only_some_share_gpus_are_refused_unless_all_use_mpi():
    """The first host's workers would wait in NCCL for those of the second, which share a GPU and are in MPI."""
    hosts = [("0", "1"), ("0",)]

    def chosen(**told: str) -> list[Communication]:
        plans = [plan for gpus in hosts for plan in plan_workers([identity(0), identity(1)], None, gpus)]
        return [communication(variables_of(plan, {}, **told), num_gpus=1) for plan in plans]

    with pytest.raises(ConfigurationError, match=r"2 over nccl \(such as rank 0\), 2 over mpi \(such as rank 2\)"):
        refuse_different(chosen())
    refuse_different(chosen(PACELINE_COMMUNICATION="mpi"))


def test_mpi_gets_the_devices_of_the_plan_unless_the_user_named_others():
    (plan,) = plan_workers([identity(0)], None, (), net_devices="eth0,mlx5_0:1")
    assert variables_of(plan, {})["UCX_NET_DEVICES"] == "eth0,mlx5_0:1"
    assert variables_of(plan, {"UCX_NET_DEVICES": "ib0"})["UCX_NET_DEVICES"] == "ib0"


def test_workers_that_share_a_gpu_talk_over_mpi_unless_told_otherwise():
    one, _ = plan_workers([identity(0), identity(1)], None, ("0",))
    assert variables_of(one, {})["PACELINE_COMMUNICATION"] == "mpi"
    assert variables_of(one, {}, PACELINE_COMMUNICATION="ring")["PACELINE_COMMUNICATION"] == "ring"


def test_a_worker_is_told_the_options_of_its_head_alone_and_which_they_are():
    """A job that a script started took over PACELINE_SNAPSHOT_DIR, and went on from the other job's snapshots."""
    inherited = {"PACELINE_SNAPSHOT_DIR": "/of/this/host", "PACELINE_WORKERS": "4", "PACELINE_OF_SCRIPT": "1", "A": "b"}
    variables = variables_of(WorkerPlan(identity(0), None, None), inherited, PACELINE_SNAPSHOT_KEEP="5")
    assert "PACELINE_SNAPSHOT_DIR" not in variables
    assert "PACELINE_WORKERS" not in variables
    assert (variables["PACELINE_SNAPSHOT_KEEP"], variables["PACELINE_OF_SCRIPT"], variables["A"]) == ("5", "1", "b")
    ours = {**variables, "PACELINE_SNAPSHOT_KEEP": "2", "PACELINE_WORKERS": "3"}
    options = {option.variable for option in rows(JobOptions)}
    assert {name for name in users_variables(variables) if name in options} == set()
    assert {name: value for name, value in users_variables(ours).items() if name in options} == {
        "PACELINE_SNAPSHOT_KEEP": "2",
        "PACELINE_WORKERS": "3",
    }
