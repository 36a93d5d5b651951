"""The entry point of the launcher: runs a job as its head or as one of its nodes.

check ─► guard ─► import of the rest, while the guard gets ready ─► head, in an event loop
"""

import os

from paceline.cluster import environment
from paceline.cluster.keras_backend import check_keras_backend
from paceline.errors import ConfigurationError
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.guard_line import GuardLine, guarded
from paceline.launcher.workers.host_resources import usable_cores

_DESCRIPTORS_OF_WORKER = 4
"""Of the launcher: its stdout and stderr, its messages, and its MPI's."""

_OTHER_DESCRIPTORS = 40
"""Of the launcher itself, and for the moment in which a worker is started."""


def run(job: JobDescription) -> int:
    """Runs `job`, or this host's part of it, leaves no process behind, and returns its exit code.

    That is 0, or the first failure's. The workers' output goes to ``sys.stdout`` and ``sys.stderr``.

    Raises:
        ConfigurationError: a setting is wrong; nothing has been started.
        OSError: the system cannot start the processes; none is left.
    """
    check(job)
    if job.nodes is not None and job.nodes.node_rank > 0:
        from paceline.launcher.hosts.node import run_node  # only a node needs it

        return run_node(job, job.nodes)
    job_id = os.urandom(8).hex()
    with guarded(job_id) as guard:
        return _run_head(job, job_id, guard)


def _run_head(job: JobDescription, job_id: str, guard: GuardLine) -> int:
    import asyncio  # here, and the head, because they take longer to load than the guard takes to start

    from paceline.launcher.head import Head
    from paceline.launcher.hosts.ways import way_to_hosts

    return asyncio.run(Head(job, job_id, way_to_hosts(job, job_id, guard)).run())


def check(job: JobDescription) -> None:
    """Refuses a job that cannot be run on this host.

    Raises:
        ConfigurationError: TF_CONFIG, the backend of Keras, the log folder or the number of workers is wrong.
    """
    if not job.hosts:
        _check_descriptors(job)
    if environment.TF_CONFIG in job.environment:
        from paceline.cluster.tf_config import read_tf_config  # most jobs have none, and should start quickly

        read_tf_config(job.environment)  # a broken one is refused, although it will be replaced
    check_keras_backend(job.environment)
    if job.options.log_dir is not None:
        try:
            job.options.log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise ConfigurationError(
                f"--log-dir: received {str(job.options.log_dir)!r}; expected a writable folder ({fault}) [option]"
            ) from fault


def _check_descriptors(job: JobDescription) -> None:
    """Refuses more processes than the launcher may have open files for; else a start breaks off in its middle."""
    import resource  # Windows has none, and runs no job

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_processes = len(job.cast(job.num_workers)) * (2 if job.options.standby else 1)
    needed = num_processes * (_DESCRIPTORS_OF_WORKER + (job.options.log_dir is not None)) + _OTHER_DESCRIPTORS
    if allowed == resource.RLIM_INFINITY or needed <= allowed:
        return
    num_cores = len(usable_cores())
    raise ConfigurationError(
        f"--workers: received {job.num_workers}, for which the launcher needs {needed:,} open files, and this shell "
        f"allows {allowed:,}. This host has {num_cores} {'core' if num_cores == 1 else 'cores'} for workers: type "
        f"--workers {num_cores}, or first raise the limit: ulimit -n {needed} [open-files]"
    )
