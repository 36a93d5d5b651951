"""Which scheduler, if any, started this process beside others, and who they are. Pure."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from paceline.cluster.indexed_job import kubernetes_place
from paceline.cluster.slurm_step import outside_a_step, slurm_place
from paceline.cluster.spec import ClusterSpec, Task


class Scheduler(NamedTuple):
    """A scheduler that starts a process of the user's command on each host, and what Paceline needs to know of it."""

    name: str
    """For messages."""
    marker: str
    """A variable that every process of its jobs has: without it nobody looks further."""
    place_of: Callable[[Mapping[str, str]], tuple[ClusterSpec, Task] | None]
    """All its processes as workers, and this one; None of one that it started alone."""
    other_port: str
    """What to type where the port of a place is taken."""
    why_alone: Callable[[Mapping[str, str]], str | None] = lambda _: None
    """A sentence for a process in a job of several that was not started as one of them; None of any other process."""


SCHEDULERS = (
    Scheduler(
        "Slurm",
        "SLURM_JOB_ID",
        slurm_place,
        "start the step again, for every step has other ports",
        outside_a_step,
    ),
    Scheduler(
        "Kubernetes",
        "JOB_COMPLETION_INDEX",
        kubernetes_place,
        "write another port in the PACELINE_RENDEZVOUS of every pod",
    ),
)
"""All that Paceline knows; the first that knows a process counts."""


class ScheduledPlace(NamedTuple):
    """A process's place among those that a scheduler started."""

    cluster: ClusterSpec
    """One worker for every process that the scheduler started, in the scheduler's order."""
    task: Task
    """This process."""
    scheduler: Scheduler


def may_be_scheduled(variables: Mapping[str, str]) -> bool:
    """Whether a scheduler may have started this process beside others.

    >>> may_be_scheduled({"SLURM_JOB_ID": "7"}), may_be_scheduled({"HOME": "/home/ann"})
    (True, False)
    """
    return any(scheduler.marker in variables for scheduler in SCHEDULERS)


def scheduled_place(variables: Mapping[str, str]) -> ScheduledPlace | None:
    """The place that the first scheduler that knows this process gives it; None for one that was started alone.

    Variables read: those of `slurm_place` and `kubernetes_place`, in this order. TF_CONFIG, which goes before all of
    them, is the caller's.

    >>> scheduled_place({"HOME": "/home/ann"})

    Raises:
        ConfigurationError: a scheduler's variables are incomplete or contradict each other.
    """
    for scheduler in SCHEDULERS:
        place = scheduler.place_of(variables)
        if place is not None:
            return ScheduledPlace(*place, scheduler)
    return None


def why_alone(variables: Mapping[str, str]) -> str | None:
    """What a scheduler's job is told of a process in it that `scheduled_place` does not know; else None.

    >>> why_alone({"HOME": "/home/ann"})
    """
    return next(filter(None, (scheduler.why_alone(variables) for scheduler in SCHEDULERS)), None)
