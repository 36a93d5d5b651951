"""What is known of a job before anything starts: what cannot be right is refused, what is doubtful is told."""

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from paceline.cluster import environment
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import PREFIX, rows
from paceline.errors import ConfigurationError
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.host_resources import may_have_gpus, usable_cores
from paceline.observe.step_files import steps_of_timeline

BYTES_OF_WORKER = 600_000_000
"""What a process of its own has of TensorFlow and Keras, before a model and data: measured in `benchmarks/memory`."""

_MANY_ON_A_CORE = 4
"""Processes; more of them wait for each other most of the time."""

_NEARLY = 0.8
"""Of the letters of a name: a slip of the pen, and no other name."""

_OF_TARGETS = tuple(f"{PREFIX}{target}_" for target in ("SLURM", "KUBERNETES", "GCLOUD"))
"""How the variables of `paceline render` begin."""


def refuse_impossible(job: JobDescription) -> None:
    """Refuses what cannot be right, also where the job would not come to need it.

    Raises:
        ConfigurationError: has all faults.
    """
    options, is_worker = job.options, not job.hosts
    faults = [
        _folder_fault("--log-dir", options.log_dir),
        _folder_fault("--observe", options.observe),
        _file_fault("--secret-file", options.secret_file),
        _events_fault(options),
        _timeline_fault(options),
    ]
    if is_worker and options.snapshot_dir is not None:
        faults.append(_snapshots_fault(options.snapshot_dir))
    if is_worker and job.num_workers > 1 and options.communication == "nccl" and not may_have_gpus():
        faults.append(
            "--communication: received 'nccl', which sums on GPUs, and this host has none. Fix: write --communication "
            "mpi, or leave it out"
        )
    if options.debug_port is not None and importlib.util.find_spec("debugpy") is None:
        raise ConfigurationError(
            f"--debug-port: debugpy is not installed for {sys.executable}. Fix: pip install 'paceline[debug]'; or "
            "debug at the terminal: leave --debug-port out, and write --debug-rank 0 [debug]"
        )
    if found := [fault for fault in faults if fault]:
        raise ConfigurationError("\n".join(found) + " [option]")


def refuse_snapshots_in(directory: str) -> None:
    """Refuses a place in which this host cannot write snapshots: else each rank would, after importing TensorFlow.

    Raises:
        ConfigurationError: this host cannot.
    """
    if fault := _snapshots_fault(directory):
        raise ConfigurationError(f"{fault} [option]")


def _snapshots_fault(directory: str) -> str:
    return "" if "://" in directory else _folder_fault("--snapshot-dir", Path(directory))


def _folder_fault(flag: str, folder: Path | None) -> str:
    """What is wrong with a folder that is made where it is missing; empty: nothing."""
    if folder is None:
        return ""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not nearest.is_dir():
        reason = f"{nearest} is no folder"
    elif not os.access(nearest, os.W_OK | os.X_OK) or not _takes_files(nearest):
        reason = f"this user may not write in {nearest}"
    else:
        return ""
    return f"{flag}: received {str(folder)!r}; expected a folder in which files can be written ({reason})"


def _takes_files(folder: Path) -> bool:
    """Whether the file system of a folder has files of users: root may write anywhere, but not there."""
    return not any(folder == place or place in folder.parents for place in (Path("/proc"), Path("/sys")))


def _file_fault(flag: str, file: Path | None) -> str:
    """What is wrong with a file that is read; empty: nothing."""
    if file is None:
        return ""
    if file.exists() and not file.is_file():
        return ""  # a pipe, which can be read once
    try:
        file.open("rb").close()
    except OSError as fault:
        return f"{flag}: received {str(file)!r}; expected a file that can be read ({fault.strerror})"
    return ""


def _events_fault(options: JobOptions) -> str:
    """Whether two options are to write one file."""
    if options.events is None or options.observe is None:
        return ""
    from paceline.report.kept_job import EVENTS  # most jobs do without

    if options.events.absolute() != options.observe.absolute() / EVENTS:
        return ""
    return f"--events: received {str(options.events)!r}, which --observe writes; expected another file"


def _timeline_fault(options: JobOptions) -> str:
    """Whether there are no such steps, or no timeline that could have them."""
    if options.timeline is None:
        return ""
    if not steps_of_timeline(options.timeline):
        return f"--timeline: received {options.timeline!r}; expected the first step and then the last, as in 100:110"
    if options.observe is None:
        return f"--timeline: received {options.timeline!r} without --observe FOLDER, in which the timeline is kept"
    return ""


def doubts(job: JobDescription, variables: Mapping[str, str]) -> Iterator[str]:
    """What is worth a line before the job starts.

    Args:
        job: The job, of which nothing is impossible.
        variables: Those of the launcher, with ``--env``.
    """
    yield from unknown_variables(variables)
    if job.hosts:
        return
    if line := crowded_text(len(job.cast(job.num_workers)), len(usable_cores()), free_bytes()):
        yield line


def unknown_variables(variables: Iterable[str]) -> Iterator[str]:
    """A line for each variable that is nearly called like one of Paceline's; others may be the script's own.

    >>> names = [f"{PREFIX}{name}" for name in ("WORKRES", "WORKERS", "MY_OWN")]
    >>> [line.partition(": ")[2] for line in unknown_variables(names)]
    ['did you mean PACELINE_WORKERS? [unknown-variable]']
    """
    known = {option.variable for option in rows(JobOptions)}
    known |= {name for key, name in vars(environment).items() if key.isupper() and isinstance(name, str)}
    for name in sorted(variables):
        if name.startswith(PREFIX) and name not in known and not name.startswith(_OF_TARGETS):
            import difflib  # seldom needed

            names = [one.removeprefix(PREFIX) for one in known]
            for meant in difflib.get_close_matches(name.removeprefix(PREFIX), names, n=1, cutoff=_NEARLY):
                yield f"{name} is set, and means nothing: did you mean {PREFIX}{meant}? [unknown-variable]"


def crowded_text(num_processes: int, num_cores: int, free_bytes: int) -> str:
    """A line on more processes than this host has cores or memory for; empty: it is none.

    >>> crowded_text(4, 2, 16_000_000_000)
    ''
    >>> crowded_text(9, 16, 5_000_000_000)
    '9 processes on this host need about 5.4 GB before models and data, and 5 GB are free. [crowded]'
    """
    needed = num_processes * BYTES_OF_WORKER
    if num_processes <= _MANY_ON_A_CORE * num_cores and needed <= free_bytes:
        return ""
    share = f"; they share {num_cores} core{'' if num_cores == 1 else 's'}" if num_processes > num_cores else ""
    return (
        f"{num_processes} processes on this host need about {gigabytes(needed)} before models and data, and "
        f"{gigabytes(free_bytes)} are free{share}. [crowded]"
    )


def free_bytes() -> int:
    """Memory of this host that is free for this process and its like."""
    import psutil  # the launcher loads it while the guard gets ready

    from paceline.cluster.control_groups import free_memory_bytes

    return free_memory_bytes(psutil.virtual_memory().available)


def gigabytes(num_bytes: int) -> str:
    """As users read it."""
    return f"{num_bytes / 1e9:.2g} GB" if num_bytes < 10e9 else f"{num_bytes / 1e9:.0f} GB"
