"""The directory for what the ranks of one job on one host tell each other through files.

The first rank that needs it makes it; whoever watches the job (the agent, its guard, or the watchdogs of a job that was
started by hand) removes it at the end, however the workers ended.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from paceline.cluster import environment


def job_directory(job_id: str) -> Path:
    """Where it is, whether or not it has been made."""
    return Path(tempfile.gettempdir(), f"paceline-{job_id}")


def own_job_directory(job_id: str, variables: Mapping[str, str]) -> Path:
    """Where it is for a rank: where its launcher says, else `job_directory`.

    Variables read: PACELINE_JOB_DIRECTORY.
    """
    told = variables.get(environment.JOB_DIRECTORY)
    return Path(told) if told else job_directory(job_id)


def remove_job_directory(job_id: str) -> None:
    """Removes `job_directory` with all that is in it; one that was never made is no error."""
    shutil.rmtree(job_directory(job_id), ignore_errors=True)
