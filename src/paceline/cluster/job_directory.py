"""What the ranks of one job on one host share besides memory: a directory for files, and the room in `/dev/shm`.

The first rank that needs the directory makes it; an agent of the job or its guard (by hand, the agent beside a worker)
removes it at the end, however the workers ended.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from paceline.cluster import environment
from paceline.errors import ConfigurationError


def job_directory(job_id: str) -> Path:
    """Where it is, whether or not it has been made."""
    return Path(tempfile.gettempdir(), f"paceline-{job_id}")


def own_job_directory(job_id: str, variables: Mapping[str, str]) -> Path:
    """Where it is for a rank: where its launcher says, else `job_directory`.

    Variables read: PACELINE_JOB_DIRECTORY.
    """
    told = variables.get(environment.JOB_DIRECTORY)
    return Path(told) if told else job_directory(job_id)


def make_private(directory: Path) -> None:
    """Makes `directory` for this user alone, unless it is there already.

    Where temporary files go, everybody may write: whoever had made it first could hold the locks in it, write lines
    into its files, and put links in their place. In one that passes here, nobody else can.

    Raises:
        ConfigurationError: what is there is no directory, another user's, or open to others.
    """
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=stat.S_IRWXU, parents=True)
    found = directory.lstat()
    kind = "a directory" if stat.S_ISDIR(found.st_mode) else "a link" if stat.S_ISLNK(found.st_mode) else "a file"
    open_to_others = stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or open_to_others:
        raise ConfigurationError(
            f"{directory}, through which the ranks of this host agree on who writes a file, is {kind} of user "
            f"{found.st_uid} with mode {stat.S_IMODE(found.st_mode):03o}; expected a directory of user {os.geteuid()} "
            "with mode 700. Either another user has put it there, or its file system keeps no owners. Fix: set TMPDIR "
            "to a directory of your own, on a local file system, on every host before the job starts. [job-directory]"
        )


def remove_job_directory(job_id: str) -> None:
    """Removes `job_directory` with all that is in it; one that was never made is no error."""
    shutil.rmtree(job_directory(job_id), ignore_errors=True)


DIRECTORY = Path("/dev/shm")


def free_bytes() -> int:
    """Bytes that can still be written to `/dev/shm`, of which containers often have 64 MB; 0 where there is none."""
    try:
        status = os.statvfs(DIRECTORY)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
