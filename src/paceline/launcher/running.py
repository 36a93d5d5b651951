"""The entry point of the launcher: runs a job as its head or as one of its nodes.

check ─► guard ─► import of the rest, while the guard gets ready ─► head, in an event loop
"""

import os
import sys

from paceline.cluster import environment
from paceline.cluster.keras_backend import check_keras_backend
from paceline.launcher.job import JobDescription
from paceline.launcher.open_files import check_open_files
from paceline.launcher.preflight import doubts, refuse_impossible
from paceline.launcher.workers.guard_line import GuardLine, guarded


def run(job: JobDescription) -> int:
    """Runs `job`, or this host's part of it, leaves no process behind, and returns its exit code.

    That is 0, or the first failure's. The workers' output goes to ``sys.stdout`` and ``sys.stderr``.

    Raises:
        ConfigurationError: a setting is wrong; nothing has been started.
        OSError: the system cannot start the processes; none is left.
    """
    check(job)
    if job.options.dry_run:
        from paceline.launcher.dry_run import dry_run_text

        _tell_doubts(job)
        print(dry_run_text(job))
        return 0
    if job.nodes is not None and job.nodes.node_rank > 0:
        from paceline.launcher.hosts.node import run_node  # only a node needs it

        return run_node(job, job.nodes)
    job_id = os.urandom(8).hex()
    with guarded(job_id) as guard:
        return _run_head(job, job_id, guard)


def _tell_doubts(job: JobDescription) -> None:
    for line in doubts(job, job.environment):
        print(f"paceline: {line}", file=sys.stderr)


def _run_head(job: JobDescription, job_id: str, guard: GuardLine) -> int:
    _tell_doubts(job)
    import asyncio  # here, and the head, because they take longer to load than the guard takes to start

    from paceline.launcher.head import Head
    from paceline.launcher.hosts.ways import way_to_hosts

    return asyncio.run(Head(job, job_id, way_to_hosts(job, job_id, guard)).run())


def check(job: JobDescription) -> None:
    """Refuses a job that cannot be run on this host.

    Raises:
        ConfigurationError: TF_CONFIG, the backend of Keras, a folder or the number of workers is wrong.
    """
    if not job.hosts:
        check_open_files(job)  # else each host does for itself
    if environment.TF_CONFIG in job.environment:
        from paceline.cluster.tf_config import read_tf_config  # most jobs have none, and should start quickly

        read_tf_config(job.environment)  # a broken one is refused, although it will be replaced
    check_keras_backend(job.environment)
    refuse_impossible(job)
    if job.options.dry_run:
        return
    for folder in (job.options.log_dir, job.options.observe):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
