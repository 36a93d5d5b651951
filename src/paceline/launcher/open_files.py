"""Whether the launcher of a host may open as many files as its workers need; else a start breaks off in its middle."""

from paceline.errors import ConfigurationError
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.host_resources import usable_cores

_DESCRIPTORS_OF_WORKER = 4
"""Of the launcher: its stdout and stderr, its messages, and its MPI's."""

_OTHER_DESCRIPTORS = 40
"""Of the launcher itself, and for the moment in which a worker is started."""


def check_open_files(job: JobDescription, *, is_one_of_hosts: bool = False) -> None:
    """Refuses more workers on this host than the limit of open files allows.

    Args:
        job: What this host runs.
        is_one_of_hosts: Whether it is a host of ``--hosts``, so that its number of workers may stand there.

    Raises:
        ConfigurationError: says how many workers, and which limit, there may be.
    """
    import resource  # Windows has none, and runs no job

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_processes = len(job.cast(job.num_workers)) * (2 if job.options.standby else 1)
    needed = num_processes * (_DESCRIPTORS_OF_WORKER + (job.options.log_dir is not None)) + _OTHER_DESCRIPTORS
    if allowed == resource.RLIM_INFINITY or needed <= allowed:
        return
    num_cores = len(usable_cores())
    received = f"received {job.num_workers} workers for this host" if is_one_of_hosts else f"received {job.num_workers}"
    fewer = f"--hosts HOST:{num_cores}" if is_one_of_hosts else f"--workers {num_cores}"
    raise ConfigurationError(
        f"--workers: {received}, for which the launcher needs {needed:,} open files, and this shell allows "
        f"{allowed:,}. This host has {num_cores} {'core' if num_cores == 1 else 'cores'} for workers: type {fewer}, or "
        f"first raise the limit: ulimit -n {needed} [open-files]"
    )
