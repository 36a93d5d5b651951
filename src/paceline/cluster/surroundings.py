"""Which scheduler, if any, started this process beside others, and who they are. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from paceline.cluster.kubernetes import kubernetes_place
from paceline.cluster.slurm import slurm_place
from paceline.cluster.spec import ClusterSpec, Task


class ScheduledPlace(NamedTuple):
    """A process's place among those that a scheduler started."""

    cluster: ClusterSpec
    """One worker for every process that the scheduler started, in the scheduler's order."""
    task: Task
    """This process."""
    scheduler: str
    """``Slurm`` or ``Kubernetes``, for messages."""


OTHER_PORT = {
    "Slurm": "start the step again, for every step has other ports",
    "Kubernetes": "write another port in the PACELINE_RENDEZVOUS of every pod",
}
"""What to do, by scheduler, where the port of a `ScheduledPlace` is taken."""

_READERS = {"Slurm": slurm_place, "Kubernetes": kubernetes_place}


def scheduled_place(variables: Mapping[str, str]) -> ScheduledPlace | None:
    """The place that the first scheduler that knows this process gives it; None for one that was started alone.

    Variables read: those of `slurm_place` and `kubernetes_place`, in this order. TF_CONFIG, which goes before all of
    them, is the caller's.

    >>> scheduled_place({"HOME": "/home/ann"})

    Raises:
        ConfigurationError: a scheduler's variables are incomplete or contradict each other.
    """
    for scheduler, read in _READERS.items():
        place = read(variables)
        if place is not None:
            return ScheduledPlace(*place, scheduler)
    return None
