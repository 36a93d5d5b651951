"""What the launcher tells a worker: its place, by `environment.RANK` and its siblings, and signals. Pure."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.cluster import environment
from paceline.cluster.spec import CHIEF, DATA, PARAMETER_SERVER, WORKER, Task, numbers_with_slots
from paceline.errors import ConfigurationError

STACKS_SIGNAL = signal.SIGQUIT
"""A worker writes the stacks of all its threads to stderr, even where the interpreter is stuck."""

PREEMPTION_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""What a scheduler sends to a job that must leave its place, with time to save its work."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The place of a process in its job.

    A process outside of the world, such as a parameter server, has a number behind all ranks, by which the launcher
    knows it.
    """

    task: Task
    rank: int
    """From 0 to `world_size` - 1 in the world; outside of it from `world_size` on."""
    world_size: int
    local_rank: int
    local_world_size: int
    generation: int
    job_id: str
    seed: int

    @property
    def in_world(self) -> bool:
        """Whether the process has a rank and takes part in collectives."""
        return self.rank < self.world_size

    @property
    def label(self) -> str:
        """As users read it before a line of output: the rank; ``chief`` or ``ps 0`` where the chief alone is a rank."""
        if not self.in_world:
            return str(self.task)
        return CHIEF if self.task.type == CHIEF and self.world_size == 1 else str(self.rank)

    @property
    def serves(self) -> bool:
        """Whether the process does not run the script: TensorFlow's runtime in it serves those that do."""
        return not self.in_world and self.task.type in (WORKER, PARAMETER_SERVER, DATA)

    def to_environment(self) -> dict[str, str]:
        """The variables from which `launched_identity` reads the same identity."""
        return {
            environment.TASK: str(self.task),
            environment.RANK: str(self.rank),
            environment.WORLD_SIZE: str(self.world_size),
            environment.LOCAL_RANK: str(self.local_rank),
            environment.LOCAL_WORLD_SIZE: str(self.local_world_size),
            environment.GENERATION: str(self.generation),
            environment.JOB_ID: self.job_id,
            environment.SEED: str(self.seed),
        }


def slot_holders(identities: Sequence[WorkerIdentity]) -> tuple[WorkerIdentity, ...]:
    """Those of the processes of one host that its slots, cores and GPUs are for, in order; see `numbers_with_slots`."""
    numbers = numbers_with_slots((one.task, one.in_world) for one in identities)
    return tuple(identities[number] for number in numbers)


def launched_identity(variables: Mapping[str, str]) -> WorkerIdentity | None:
    """The identity that the launcher gave this process; None in a process that no launcher started.

    Variables read: PACELINE_TASK, PACELINE_RANK, PACELINE_WORLD_SIZE, PACELINE_LOCAL_RANK, PACELINE_LOCAL_WORLD_SIZE,
    PACELINE_GENERATION, PACELINE_JOB_ID, PACELINE_SEED.

    Raises:
        ConfigurationError: some of them are set and others missing or not numbers.
    """
    if environment.RANK not in variables:
        return None
    try:
        role, index = variables[environment.TASK].split()
        return WorkerIdentity(
            task=Task(role, int(index)),
            rank=int(variables[environment.RANK]),
            world_size=int(variables[environment.WORLD_SIZE]),
            local_rank=int(variables[environment.LOCAL_RANK]),
            local_world_size=int(variables[environment.LOCAL_WORLD_SIZE]),
            generation=int(variables[environment.GENERATION]),
            job_id=variables[environment.JOB_ID],
            seed=int(variables[environment.SEED]),
        )
    except (KeyError, ValueError) as fault:
        raise ConfigurationError(
            f"{environment.RANK} is set, so this process should have been started by `paceline run`, but the other "
            f"variables of a launched worker are incomplete: {fault!r}. Start the script with `paceline run`, or "
            f"unset {environment.RANK}. [not-a-rank]"
        ) from fault
