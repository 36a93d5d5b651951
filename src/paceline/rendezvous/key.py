"""The key that tells this job's processes from all others: from the user's secret file, or from the cluster's
description.

The second is no secret (whoever knows the cluster's addresses can derive it); it keeps jobs apart that meet
by mistake. On a network with strangers, give every rank the same file in ``PACELINE_SECRET_FILE``.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from paceline.cluster import environment
from paceline.cluster.describe import canonical_bytes
from paceline.cluster.spec import ClusterSpec
from paceline.errors import ConfigurationError

_MAX_SECRET_BYTES = 1 << 16


def cluster_digest(cluster: ClusterSpec) -> str:
    """A short name of the cluster's description, equal on ranks that were given the same one."""
    return hashlib.sha256(canonical_bytes(cluster)).hexdigest()[:16]


def job_key(cluster: ClusterSpec, variables: Mapping[str, str]) -> bytes:
    """The job's key. Variables read: PACELINE_SECRET_FILE.

    Raises:
        ConfigurationError: the file cannot be read, is empty, or others than its owner may read it.
    """
    path = variables.get(environment.SECRET_FILE)
    if path is None:
        return hashlib.sha256(b"paceline cluster\0" + canonical_bytes(cluster)).digest()
    return hashlib.sha256(b"paceline secret\0" + _secret(Path(path))).digest()


def _secret(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())  # of this file, not of one that takes its name meanwhile
            content = file.read(_MAX_SECRET_BYTES).strip()
    except OSError as fault:
        raise ConfigurationError(
            f"{environment.SECRET_FILE} is {str(path)!r}, which cannot be read: {fault.strerror}. Expected a "
            "file with the job's secret, the same on every rank."
        ) from fault
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077 or status.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{environment.SECRET_FILE}: {str(path)!r} has the permissions {mode:03o} and the owner "
            f"{status.st_uid}. Expected that the user {os.geteuid()}, who runs the job, alone can read it: "
            f"`chmod 600 {path}`."
        )
    if not content:
        raise ConfigurationError(f"{environment.SECRET_FILE}: {str(path)!r} is empty. Expected the job's secret.")
    return content
