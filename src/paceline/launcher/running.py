"""The launcher's front door: runs a job from whichever place this host has in it."""

from paceline.launcher.head import run_job
from paceline.launcher.job import JobDescription


def run(job: JobDescription) -> int:
    """Runs `job`, or this host's part of it, and returns its exit code.

    Raises:
        ConfigurationError: a setting is wrong; nothing has been started.
        OSError: the system cannot start the processes; none is left.
    """
    if job.nodes is None or job.nodes.node_rank == 0:
        return run_job(job)
    from paceline.launcher.node import run_node  # only a node needs it

    return run_node(job, job.nodes)
