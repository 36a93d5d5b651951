"""A task of a Slurm step (``srun python train.py``), read from the variables that Slurm sets. Pure.

    SLURM_STEP_NODELIST=n[1-2]        n1 ─ rank 0, port p      n2 ─ rank 2, port p
    SLURM_STEP_TASKS_PER_NODE=2(x2)      ─ rank 1, port p + 1     ─ rank 3, port p + 1

Ranks are Slurm's own (SLURM_PROCID). Slurm hands out no ports, so they follow from the numbers of job and step, see
`first_port`. Every task derives the same cluster, without asking anybody.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from paceline.cluster.slurm_node_list import expand_node_list, expand_tasks_per_node
from paceline.cluster.spec import WORKER, Address, ClusterSpec, Task
from paceline.cluster.value_checks import Fault, FaultList, shown

_LOWEST_PORT = 10_240
_BLOCKS = 350
_PORTS_OF_A_BLOCK = 64
_STEPS_APART = 9
_FIRST_SPECIAL_STEP = 0xFFFF_FF00
"""Slurm numbers its own steps (batch script, interactive shell) from here on."""

_DISTRIBUTION = "SLURM_DISTRIBUTION"
_PLANE_SIZE = "SLURM_DIST_PLANESIZE"
_BLOCK_WISE = "start the step with `srun --distribution=block`, or with one task per node"
_WHOLE = re.compile(r"[0-9]{1,9}")
_AS_SLURM_SETS_IT = "start the script with srun and leave Slurm's variables as they are"
_Expanded = TypeVar("_Expanded", tuple[str, ...], tuple[int, ...])


def slurm_place(variables: Mapping[str, str]) -> tuple[ClusterSpec, Task] | None:
    """The tasks of the Slurm step as workers, and this one; None outside a step and in a step of one task.

    Variables read: SLURM_JOB_ID, SLURM_STEP_ID (or SLURM_STEPID), SLURM_PROCID, SLURM_STEP_NUM_TASKS (or
    SLURM_NTASKS), SLURM_STEP_NODELIST (or SLURM_JOB_NODELIST), SLURM_STEP_TASKS_PER_NODE (or SLURM_TASKS_PER_NODE),
    SLURM_LOCALID, SLURM_NODEID, SLURM_DISTRIBUTION, SLURM_DIST_PLANESIZE, SLURM_HET_SIZE.

    >>> spec, task = slurm_place({
    ...     "SLURM_JOB_ID": "1000", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2",
    ...     "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_PROCID": "1", "SLURM_LOCALID": "0",
    ... })
    >>> spec.as_dict(), str(task)
    ({'worker': ['n1:26240', 'n2:26240']}, 'worker 1')

    Raises:
        ConfigurationError: variables are missing or contradict each other; the message has every fault.
    """
    if not _in_a_step(variables):
        return None
    faults = FaultList("the environment that Slurm made", "[scheduler]")
    tasks = _number(variables, faults, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    if tasks == 1:
        return None
    rank = _number(variables, faults, "SLURM_PROCID")
    job = _number(variables, faults, "SLURM_JOB_ID")
    step = _number(variables, faults, "SLURM_STEP_ID", "SLURM_STEPID")
    nodes = _expanded(variables, faults, expand_node_list, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
    counts = _expanded(variables, faults, expand_tasks_per_node, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    at_a_time = tasks_at_a_time(variables, faults)
    if tasks is None or rank is None or job is None or step is None or nodes is None or counts is None:
        raise faults.error()
    _compare(variables, faults, tasks, rank, nodes, counts)
    if faults:
        raise faults.error()
    places = layout(counts, at_a_time)
    check_own_place(variables, faults, places[rank])
    if faults:
        raise faults.error()
    first = first_port(job, step)
    cluster = ClusterSpec({WORKER: tuple(Address(nodes[node], _port(first, local)) for node, local in places)})
    return cluster, Task(WORKER, rank)


def first_port(job_id: int, step_id: int) -> int:
    """The port of the first task on each node; the next tasks there have the next ports.

    ``10240 + 64 * ((9 * job + step) mod 350)``: below Linux's own range for outgoing connections (32768 on), and
    another block of 64 ports for jobs and steps that follow each other, which may share a node.
    """
    return _LOWEST_PORT + _PORTS_OF_A_BLOCK * ((_STEPS_APART * job_id + step_id) % _BLOCKS)


def _port(first: int, local_rank: int) -> int:
    return _LOWEST_PORT + (first - _LOWEST_PORT + local_rank) % (_BLOCKS * _PORTS_OF_A_BLOCK)


def outside_a_step(variables: Mapping[str, str]) -> str | None:
    """A sentence for a process that is in a Slurm job of several tasks, but in no step of it; else None.

    That is a batch script that starts Python without `srun`, or a shell of `salloc`.

    Variables read: SLURM_JOB_ID, SLURM_STEP_ID (or SLURM_STEPID), SLURM_NTASKS, SLURM_JOB_NUM_NODES.
    """
    job = variables.get("SLURM_JOB_ID")
    tasks, nodes = variables.get("SLURM_NTASKS", "1"), variables.get("SLURM_JOB_NUM_NODES", "1")
    if not job or _in_a_step(variables) or (tasks, nodes) == ("1", "1"):
        return None
    return (
        f"this process is in Slurm job {job} (tasks: {tasks}, nodes: {nodes}), but not in a step of it: "
        "write `srun` before the command, which starts it once for every task."
    )


def _in_a_step(variables: Mapping[str, str]) -> bool:
    """Whether `srun` started this process; a batch script has a task's number, too, but no step's."""
    text = variables.get("SLURM_STEP_ID") or variables.get("SLURM_STEPID") or ""
    special = text.isascii() and text.isdecimal() and len(text) < 11 and int(text) >= _FIRST_SPECIAL_STEP
    return bool(text) and not special and not text.startswith("-")


def _first_set(variables: Mapping[str, str], faults: FaultList, names: Sequence[str], expected: str) -> str | None:
    name = next((name for name in names if variables.get(name)), None)
    if name is None:
        faults.add(names[0], "nothing", expected, _AS_SLURM_SETS_IT)
    return name


def _number(variables: Mapping[str, str], faults: FaultList, *names: str) -> int | None:
    name = _first_set(variables, faults, names, "a whole number")
    if name is not None and _WHOLE.fullmatch(variables[name]) is None:
        faults.add(name, shown(variables[name]), "a whole number", _AS_SLURM_SETS_IT)
        return None
    return None if name is None else int(variables[name])


def _expanded(
    variables: Mapping[str, str], faults: FaultList, expand: Callable[[str, str], _Expanded | Fault], *names: str
) -> _Expanded | None:
    name = _first_set(variables, faults, names, "a list as Slurm writes it")
    if name is None:
        return None
    found = expand(name, variables[name])
    if isinstance(found, Fault):
        faults.append(found)
        return None
    return found


def _compare(
    variables: Mapping[str, str],
    faults: FaultList,
    tasks: int,
    rank: int,
    nodes: tuple[str, ...],
    counts: tuple[int, ...],
) -> None:
    """Adds to `faults` what the variables say against each other."""
    if rank >= tasks:
        expected = f"a number below the number of tasks, {tasks} (SLURM_STEP_NUM_TASKS)"
        faults.add("SLURM_PROCID", str(rank), expected, _AS_SLURM_SETS_IT)
    if len(set(nodes)) < len(nodes):
        faults.add("SLURM_STEP_NODELIST", "a node more than once", "each once", _AS_SLURM_SETS_IT)
    if (len(counts), sum(counts)) == (len(nodes), tasks):
        return
    fix = _AS_SLURM_SETS_IT
    if variables.get("SLURM_HET_SIZE", "1") != "1":
        fix = (
            "a step over several components of a heterogeneous job cannot be read: start it in one component "
            "(srun --het-group=0), or start `paceline run --hosts` in the batch script"
        )
    faults.add(
        "SLURM_STEP_TASKS_PER_NODE",
        f"{sum(counts)} tasks on {len(counts)} nodes",
        f"{tasks} tasks (SLURM_STEP_NUM_TASKS) on {len(nodes)} nodes (SLURM_STEP_NODELIST)",
        fix,
    )


def layout(counts: Sequence[int], at_a_time: int | None) -> tuple[tuple[int, int], ...]:
    """Node and number there of each task, in the order of the tasks.

    >>> layout([2, 1], at_a_time=None)
    ((0, 0), (0, 1), (1, 0))
    >>> layout([2, 1], at_a_time=1)
    ((0, 0), (1, 0), (0, 1))

    Args:
        counts: Tasks on each node.
        at_a_time: How many tasks a node gets before it is the next one's turn; None: all of its tasks.
    """
    places: list[tuple[int, int]] = []
    used = [0] * len(counts)
    while len(places) < sum(counts):
        for node, count in enumerate(counts):
            until = count if at_a_time is None else min(count, used[node] + at_a_time)
            places += [(node, local) for local in range(used[node], until)]
            used[node] = until
    return tuple(places)


def tasks_at_a_time(variables: Mapping[str, str], faults: FaultList) -> int | None:
    """How many tasks in a row a node gets; None: all of its tasks. Adds to `faults` what cannot be known.

    Variables read: SLURM_DISTRIBUTION (``block`` when absent), SLURM_DIST_PLANESIZE.
    """
    text = variables.get(_DISTRIBUTION, "")
    over_nodes = text.lower().partition(":")[0].partition(",")[0].partition("=")[0]
    if over_nodes in ("", "*", "block"):
        return None
    if over_nodes == "cyclic":
        return 1
    size = variables.get(_PLANE_SIZE) or text.partition("=")[2]
    if over_nodes == "plane" and size.isascii() and size.isdecimal() and 0 < len(size) < 7 and int(size):
        return int(size)
    faults.add(_DISTRIBUTION, shown(text), "block, cyclic or plane, whose places can be worked out", _BLOCK_WISE)
    return None


def check_own_place(variables: Mapping[str, str], faults: FaultList, place: tuple[int, int]) -> None:
    """Adds to `faults` if Slurm has put this task elsewhere than at `place`, its node and number there.

    Variables read: SLURM_NODEID, SLURM_LOCALID.
    """
    for name, worked_out in zip(("SLURM_NODEID", "SLURM_LOCALID"), place, strict=True):
        text = variables.get(name)
        if text and text.strip() != str(worked_out):
            expected = f"{worked_out}, as this step's tasks per node and its distribution say"
            faults.add(name, shown(text), expected, _BLOCK_WISE)
