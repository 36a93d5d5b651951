"""Who is in the job: immutable values that every way of starting a job ends in. No environment, no I/O."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

CHIEF = "chief"
WORKER = "worker"
PARAMETER_SERVER = "ps"
EVALUATOR = "evaluator"
DATA = "data"
"""Not one of TensorFlow's."""

LOCAL_HOST = "127.0.0.1"
"""Not ``localhost``, which may also mean ``::1``: then one side listens where the other does not call."""


class Policy(Enum):
    """What the launcher does when a process dies: ends with another code than 0, or by a signal."""

    FATAL = "fatal"
    """All processes of the job are stopped, and begin again if ``--max-restarts`` allows that."""
    REPLACEABLE = "replaceable"
    """That process alone is started again if ``--max-restarts`` allows that, and the others go on, also without it. The
    job ends when no process of the role is left."""
    SIDECAR = "sidecar"
    """As replaceable, whatever ``--max-restarts`` says, and it never ends the job."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a process is for, e.g. ``Role("ps", Policy.REPLACEABLE, in_world=False)``.

    Args:
        name: As TF_CONFIG calls it, one of `ROLES`.
        policy: What the death of a process in this role means.
        in_world: Whether it has a rank and takes part in collectives.
        in_cluster: Whether TF_CONFIG lists its address; else the process only knows its own task, and has a world of
            its own.
    """

    name: str
    policy: Policy
    in_world: bool
    in_cluster: bool = True


ROLES: Mapping[str, Role] = {
    role.name: role
    for role in (
        Role(CHIEF, Policy.FATAL, in_world=True),
        Role(WORKER, Policy.FATAL, in_world=True),
        Role(PARAMETER_SERVER, Policy.FATAL, in_world=False),
        Role(EVALUATOR, Policy.SIDECAR, in_world=False, in_cluster=False),
    )
}
"""The task types that TensorFlow 2 knows, by name, in rank order, as they are where a job does not say otherwise."""

SERVING_WORKER = Role(WORKER, Policy.REPLACEABLE, in_world=False)
"""A worker beside parameter servers: it computes the steps that the chief dispatches, and may die alone."""

COORDINATED_DATA_WORKER = Role(DATA, Policy.FATAL, in_world=False, in_cluster=False)
"""The only data worker: all ranks wait for its batches, and another one would begin anew."""

DATA_WORKER = Role(DATA, Policy.REPLACEABLE, in_world=False, in_cluster=False)
"""One of several: the others go on with what it has not begun."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a task listens, e.g. ``Address("10.0.0.7", 2222)`` or ``Address("::1", 2222)``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Task:
    """One process's place in the cluster, e.g. ``Task("worker", 1)``."""

    type: str
    index: int

    def __str__(self) -> str:
        return f"{self.type} {self.index}"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The whole job: for each of `ROLES` that it has the addresses of its tasks, in order.

    Ranks number the training processes: the `chief` first if there is one, then the workers; parameter servers and
    evaluators have none.

    >>> spec = ClusterSpec({"worker": (Address("a", 1), Address("b", 1))})
    >>> spec.world_size, spec.rank_of(Task("worker", 1)), str(spec.address_of_rank(1))
    (2, 1, 'b:1')

    Raises:
        ValueError: a role is unknown, there are several chiefs, or nobody trains. (`tf_config.py` words it for users.)
    """

    addresses: Mapping[str, tuple[Address, ...]]

    def __post_init__(self) -> None:
        if unknown := set(self.addresses) - {*ROLES, DATA}:
            raise ValueError(f"received the roles {sorted(unknown)}; expected some of {', '.join(ROLES)}")
        if len(self.addresses.get(CHIEF, ())) > 1:
            raise ValueError(f"received {len(self.addresses[CHIEF])} chiefs; expected one at most")
        if not self.training_tasks:
            raise ValueError(f"received only {sorted(self.addresses)}; expected a {WORKER} or a {CHIEF}, which train")

    @property
    def training_tasks(self) -> tuple[Task, ...]:
        """The tasks that have a rank, in rank order."""
        return tuple(
            Task(role.name, index)
            for role in ROLES.values()
            if role.in_world
            for index in range(len(self.addresses.get(role.name, ())))
        )

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return len(self.training_tasks)

    def rank_of(self, task: Task) -> int:
        """The rank of `task`.

        Raises:
            ValueError: `task` has no rank (a parameter server, an evaluator, or not in this cluster).
        """
        if task not in self.training_tasks:
            known = ", ".join(map(str, self.training_tasks)) or "none"
            raise ValueError(f"{task} has no rank; expected one of the training tasks of this cluster: {known}")
        return self.training_tasks.index(task)

    def address_of(self, task: Task) -> Address:
        """The address that `task` listens on."""
        return self.addresses[task.type][task.index]

    def address_of_rank(self, rank: int) -> Address:
        """The address of the training task with this rank."""
        return self.address_of(self.training_tasks[rank])

    def as_dict(self) -> dict[str, list[str]]:
        """The ``cluster`` part of TF_CONFIG, as `tf.train.ClusterSpec` takes it: with those roles that it knows."""
        return {
            type_: [str(address) for address in addresses]
            for type_, addresses in self.addresses.items()
            if type_ in ROLES and ROLES[type_].in_cluster
        }

    def to_tf_config(self, task: Task) -> str:
        """TF_CONFIG's JSON for the process that is `task`."""
        return json.dumps({"cluster": self.as_dict(), "task": {"type": task.type, "index": task.index}})


def cast_of(roles: Sequence[Role], num_ranks: int) -> tuple[tuple[Task, Role], ...]:
    """Task and role of each process of a job: its ranks first, the chief before the workers, then the others.

    Args:
        roles: Of the processes that are not just workers.
        num_ranks: How many processes are in the world, also those of `roles`.

    >>> [str(task) for task, _ in cast_of([ROLES["ps"], ROLES["evaluator"], ROLES["ps"]], num_ranks=2)]
    ['worker 0', 'worker 1', 'ps 0', 'evaluator 0', 'ps 1']
    >>> workers = [Role("worker", Policy.REPLACEABLE, in_world=False)] * 2
    >>> [str(task) for task, _ in cast_of([*workers, ROLES["chief"], ROLES["ps"]], num_ranks=1)]
    ['chief 0', 'worker 0', 'worker 1', 'ps 0']
    """
    in_world = [role for role in roles if role.in_world]
    workers = [ROLES[WORKER]] * (num_ranks - len(in_world))
    numbers = Counter[str]()
    cast = []
    for role in (*in_world, *workers, *(role for role in roles if not role.in_world)):
        cast.append((Task(role.name, numbers[role.name]), role))
        numbers[role.name] += 1
    return tuple(cast)


def numbers_with_slots(processes: Iterable[tuple[Task, bool]]) -> tuple[int, ...]:
    """The numbers of those of `processes`, each with whether it is in the world, that slots, cores and GPUs of hosts
    are for: the workers where all of them stand outside of the world, beside parameter servers; else the ranks.

    >>> numbers_with_slots([(Task("chief", 0), True), (Task("worker", 0), False), (Task("ps", 0), False)])
    (1,)
    >>> numbers_with_slots([(Task("chief", 0), True), (Task("worker", 0), True), (Task("ps", 0), False)])
    (0, 1)
    """
    known = list(processes)
    workers = {number: in_world for number, (task, in_world) in enumerate(known) if task.type == WORKER}
    if workers and not any(workers.values()):
        return tuple(workers)
    return tuple(number for number, (_, in_world) in enumerate(known) if in_world)


def canonical_bytes(spec: ClusterSpec) -> bytes:
    """The cluster as compact ASCII JSON with sorted keys; equal specs, and only those, give equal bytes.

    Each process of a job started by hand reads its own TF_CONFIG: key order, spaces and the own task differ, while the
    cluster must not. The order of addresses counts, because ranks follow from it.

    >>> canonical_bytes(ClusterSpec({"worker": (Address("b", 2),), "chief": (Address("a", 1),)}))
    b'{"chief":["a:1"],"worker":["b:2"]}'
    """
    return json.dumps(spec.as_dict(), sort_keys=True, separators=(",", ":")).encode("ascii")
