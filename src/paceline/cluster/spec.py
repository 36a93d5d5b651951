"""Who is in the job: immutable values that every way of starting a job ends in. No environment, no I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

CHIEF = "chief"
WORKER = "worker"
PARAMETER_SERVER = "ps"
EVALUATOR = "evaluator"


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
    """The whole job as TensorFlow describes it: for each task type the addresses of its tasks, in order.

    Ranks number the training processes: the `chief` first if there is one, then the workers; parameter servers and
    evaluators have none.

    >>> spec = ClusterSpec({"worker": (Address("a", 1), Address("b", 1))})
    >>> spec.world_size, spec.rank_of(Task("worker", 1)), str(spec.address_of_rank(1))
    (2, 1, 'b:1')
    """

    addresses: Mapping[str, tuple[Address, ...]]

    @property
    def training_tasks(self) -> tuple[Task, ...]:
        """The tasks that have a rank, in rank order."""
        return tuple(
            Task(type_, index) for type_ in (CHIEF, WORKER) for index in range(len(self.addresses.get(type_, ())))
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
        """The ``cluster`` part of TF_CONFIG, as `tf.train.ClusterSpec` takes it."""
        return {type_: [str(address) for address in addresses] for type_, addresses in self.addresses.items()}

    def to_tf_config(self, task: Task) -> str:
        """TF_CONFIG's JSON for the process that is `task`."""
        return json.dumps({"cluster": self.as_dict(), "task": {"type": task.type, "index": task.index}})
