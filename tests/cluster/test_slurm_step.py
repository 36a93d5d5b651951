"""Environments as `srun` makes them, and what is said about broken ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.slurm_step import first_port, outside_a_step, slurm_place
from paceline.cluster.spec import Task
from paceline.errors import ConfigurationError


def recorded(**changes: str | None) -> dict[str, str]:
    """What task 5 of ``srun -N 3 --ntasks-per-node=2`` in an sbatch job sees, as far as Slurm is concerned."""
    variables: dict[str, str | None] = {
        "SLURMD_NODENAME": "n03",
        "SLURM_CLUSTER_NAME": "lab",
        "SLURM_CPUS_ON_NODE": "8",
        "SLURM_DISTRIBUTION": "block",
        "SLURM_GTIDS": "4,5",
        "SLURM_JOBID": "4711",
        "SLURM_JOB_CPUS_PER_NODE": "8(x3)",
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "n[01-03]",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
        "SLURM_LOCALID": "1",
        "SLURM_NNODES": "3",
        "SLURM_NODEID": "2",
        "SLURM_NODELIST": "n[01-03]",
        "SLURM_NPROCS": "6",
        "SLURM_NTASKS": "6",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_PROCID": "5",
        "SLURM_SRUN_COMM_HOST": "10.0.0.1",
        "SLURM_SRUN_COMM_PORT": "40321",
        "SLURM_STEPID": "0",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_LAUNCHER_PORT": "40321",
        "SLURM_STEP_NODELIST": "n[01-03]",
        "SLURM_STEP_NUM_NODES": "3",
        "SLURM_STEP_NUM_TASKS": "6",
        "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
        "SLURM_SUBMIT_HOST": "login1",
        "SLURM_TASKS_PER_NODE": "2(x3)",
        "SLURM_TASK_PID": "31337",
        "SLURM_TOPOLOGY_ADDR": "n03",
    }
    return {name: value for name, value in (variables | changes).items() if value is not None}


BATCH_SCRIPT = recorded(
    **dict.fromkeys(("SLURM_STEPID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS")),
    **dict.fromkeys(("SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE", "SLURM_SRUN_COMM_PORT")),
    SLURM_NODEID="0",
    SLURM_PROCID="0",
    SLURM_LOCALID="0",
    SLURM_GTIDS="0",
)

PORT = first_port(4711, 0)


@dataclass(frozen=True)
class Good:
    name: str
    variables: Mapping[str, str]
    index: int
    world: list[str] = field(default_factory=list)


def _world(*tasks: tuple[str, int]) -> list[str]:
    return [f"{node}:{PORT + local}" for node, local in tasks]


SIX = _world(("n01", 0), ("n01", 1), ("n02", 0), ("n02", 1), ("n03", 0), ("n03", 1))

GOOD = [
    Good("two tasks on each of three nodes", recorded(), 5, SIX),
    Good("the first one", recorded(SLURM_PROCID="0", SLURM_NODEID="0", SLURM_LOCALID="0"), 0, SIX),
    Good(
        "one task per node",
        recorded(
            SLURM_PROCID="2",
            SLURM_LOCALID="0",
            SLURM_STEP_NUM_TASKS="3",
            SLURM_STEP_TASKS_PER_NODE="1(x3)",
            SLURM_DISTRIBUTION="cyclic",
        ),
        2,
        _world(("n01", 0), ("n02", 0), ("n03", 0)),
    ),
    Good(
        "uneven nodes",
        recorded(SLURM_STEP_TASKS_PER_NODE="3,2,1", SLURM_LOCALID="0"),
        5,
        _world(("n01", 0), ("n01", 1), ("n01", 2), ("n02", 0), ("n02", 1), ("n03", 0)),
    ),
    Good(
        "dealt out in turn",
        recorded(SLURM_DISTRIBUTION="cyclic:block"),
        5,
        _world(("n01", 0), ("n02", 0), ("n03", 0), ("n01", 1), ("n02", 1), ("n03", 1)),
    ),
    Good(
        "dealt out by two",
        recorded(
            SLURM_DISTRIBUTION="plane",
            SLURM_DIST_PLANESIZE="2",
            SLURM_STEP_TASKS_PER_NODE="2,3,1",
            SLURM_NODEID="1",
            SLURM_LOCALID="2",
        ),
        5,
        _world(("n01", 0), ("n01", 1), ("n02", 0), ("n02", 1), ("n03", 0), ("n02", 2)),
    ),
    Good(
        "a part of the job's nodes",
        recorded(
            SLURM_STEP_NODELIST="n[01,03]",
            SLURM_STEP_NUM_TASKS="2",
            SLURM_STEP_TASKS_PER_NODE="1(x2)",
            SLURM_PROCID="1",
            SLURM_NODEID="1",
            SLURM_LOCALID="0",
        ),
        1,
        _world(("n01", 0), ("n03", 0)),
    ),
    Good(
        "only the job's variables, as old versions",
        recorded(
            SLURM_STEP_NODELIST=None,
            SLURM_STEP_NUM_TASKS=None,
            SLURM_STEP_TASKS_PER_NODE=None,
            SLURM_STEP_ID=None,
            SLURM_DISTRIBUTION=None,
            SLURM_NODEID=None,
            SLURM_LOCALID=None,
        ),
        5,
        SIX,
    ),
    Good(
        "one component of a heterogeneous job",
        recorded(
            SLURM_HET_SIZE="2",
            SLURM_JOB_ID_HET_GROUP_0="4711",
            SLURM_JOB_NODELIST_HET_GROUP_0="n[01-03]",
            SLURM_JOB_NODELIST_HET_GROUP_1="login1",
        ),
        5,
        SIX,
    ),
]


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.name)
def test_reads_what_srun_sets(good: Good) -> None:
    place = slurm_place(good.variables)
    assert place is not None
    spec, task = place
    assert task == Task("worker", good.index)
    assert spec.as_dict() == {"worker": good.world}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        BATCH_SCRIPT,
        {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n[1-2]"},  # a shell of salloc
        recorded(SLURM_STEP_NUM_TASKS="1", SLURM_STEP_TASKS_PER_NODE="1"),
        recorded(SLURM_STEP_ID="4294967290", SLURM_STEPID="4294967290"),  # Slurm's own interactive step
        recorded(SLURM_STEP_ID="-5", SLURM_STEPID="-5"),
    ],
    ids=["no Slurm", "batch script", "salloc", "one task", "interactive step", "batch step"],
)
def test_nothing_to_join(variables: Mapping[str, str]) -> None:
    assert slurm_place(variables) is None


def test_a_batch_script_without_srun_is_told_so() -> None:
    hint = outside_a_step(BATCH_SCRIPT)
    assert hint is not None
    assert "Slurm job 4711 (tasks: 6, nodes: 3)" in hint
    assert "`srun`" in hint
    assert outside_a_step(recorded()) is None
    assert outside_a_step({}) is None
    assert outside_a_step({"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1"}) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SLURM_PROCID": None}, ["SLURM_PROCID: received nothing"]),
        ({"SLURM_PROCID": "6"}, ["SLURM_PROCID: received 6; expected a number below the number of tasks, 6"]),
        ({"SLURM_JOB_ID": "x"}, ['SLURM_JOB_ID: received "x"']),
        ({"SLURM_STEP_NODELIST": "n["}, ['SLURM_STEP_NODELIST: received "n["']),
        ({"SLURM_STEP_NODELIST": "n1,n1,n2"}, ["a node more than once"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, ["4 tasks on 2 nodes", "6 tasks (SLURM_STEP_NUM_TASKS) on 3 nodes"]),
        (
            {"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_HET_SIZE": "2"},
            ["heterogeneous job", "--het-group=0"],
        ),
        ({"SLURM_DISTRIBUTION": "arbitrary"}, ['SLURM_DISTRIBUTION: received "arbitrary"', "--distribution=block"]),
        ({"SLURM_DISTRIBUTION": "plane"}, ['SLURM_DISTRIBUTION: received "plane"']),
        ({"SLURM_NODEID": "0", "SLURM_LOCALID": "0"}, ["SLURM_NODEID", "SLURM_LOCALID", "--distribution=block"]),
        (
            {"SLURM_PROCID": "x", "SLURM_STEP_NODELIST": "n[", "SLURM_STEP_NUM_TASKS": ""},
            ["SLURM_PROCID", "SLURM_STEP_NODELIST"],
        ),
    ],
)
def test_says_what_is_wrong(changes: dict[str, str | None], said: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        slurm_place(recorded(**changes))
    assert str(raised.value).startswith("the environment that Slurm made has ")
    for part in said:
        assert part in str(raised.value)


def test_ports_are_below_those_of_outgoing_connections_and_differ_between_neighbours() -> None:
    ports = [first_port(job, step) for job in range(1000, 1039) for step in range(9)]
    assert len(set(ports)) == 350
    assert min(ports) == 10_240
    assert max(ports) + 63 == 32_639
    assert first_port(4711, 0) != first_port(4712, 0)


def test_many_tasks_on_a_node_still_have_a_port_each() -> None:
    many = recorded(SLURM_STEP_NUM_TASKS="600", SLURM_STEP_TASKS_PER_NODE="200(x3)", SLURM_PROCID="401")
    place = slurm_place(many)
    assert place is not None
    addresses = place[0].addresses["worker"]
    assert len(set(addresses)) == 600
    assert all(10_240 <= address.port < 32_640 for address in addresses)


names = st.sampled_from(sorted(recorded()))
texts = st.text(st.characters(exclude_characters="\0")) | st.text("0123456789nx()[],-")


@settings(deadline=None)
@given(st.dictionaries(names, texts, max_size=6))
def test_any_change(changes: dict[str, str]) -> None:
    try:
        place = slurm_place(recorded(**changes))
    except ConfigurationError as error:
        str(error).encode()
    else:
        assert place is None or place[1] in place[0].training_tasks
