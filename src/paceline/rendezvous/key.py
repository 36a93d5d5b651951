"""The key of a job, which excludes other processes: from the user's secret file, or from the cluster description.

The second is no secret (whoever knows the cluster's addresses can derive it); it keeps jobs apart that meet
by mistake. On a network with strangers, give every rank the same file in ``PACELINE_SECRET_FILE``.
"""

import hashlib
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from paceline.cluster import job_options
from paceline.cluster.address_text import is_loopback
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.cluster.spec import Address, ClusterSpec, canonical_bytes
from paceline.errors import ConfigurationError

_LOGGER = logging.getLogger("paceline")
_MAX_SECRET_BYTES = 1 << 16
_OPTION = f"--secret-file ({job_options.SECRET_FILE})"


def cluster_digest(cluster: ClusterSpec) -> str:
    """A short name of the cluster's description, equal on ranks that were given the same one."""
    return hashlib.sha256(canonical_bytes(cluster)).hexdigest()[:16]


def job_key(cluster: ClusterSpec, variables: Mapping[str, str], *, warns: bool = True) -> bytes:
    """The key of the job that `cluster` describes; see `described_key`. One process of a job is enough to warn."""
    hosts = [address.host for address in all_addresses(cluster)] if warns else []
    return described_key(canonical_bytes(cluster), hosts, variables)


def described_key(description: bytes, hosts: Iterable[str], variables: Mapping[str, str]) -> bytes:
    """The key of a job: from the secret file, or without one from its `description`, with a warning where `hosts` are
    on a network. Variables read: PACELINE_SECRET_FILE, PACELINE_REQUIRE_SECRET.

    Raises:
        ConfigurationError: the file cannot be read, is empty, or others than its owner may read it; or there is none
            although one is required.
    """
    options = read_variables(JobOptions, variables, "secret_file", "require_secret")
    if options.secret_file is not None:
        return hashlib.sha256(b"paceline secret\0" + _secret(options.secret_file)).digest()
    if options.require_secret:
        raise ConfigurationError(
            f"{job_options.REQUIRE_SECRET} is 1 (--require-secret), but {_OPTION} is not set. "
            "Expected a file with the secret of the job, the same on every host: `(umask 077; head -c 32 "
            "/dev/urandom | base64 > secret)`. [secret]"
        )
    if not all(is_loopback(host) for host in hosts):
        _LOGGER.warning(
            "this job has no secret: anybody who can reach its ports and knows its addresses can join. On a "
            "shared network, give every host the same secret file: %s.",
            _OPTION,
        )
    return hashlib.sha256(b"paceline cluster\0" + description).digest()


def all_addresses(cluster: ClusterSpec) -> tuple[Address, ...]:
    """Where any task of `cluster` listens."""
    return tuple(address for addresses in cluster.addresses.values() for address in addresses)


def _secret(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())  # of this file, not of one that takes its name meanwhile
            content = file.read(_MAX_SECRET_BYTES).strip()
    except OSError as fault:
        raise ConfigurationError(
            f"{_OPTION} is {str(path)!r}, which cannot be read: {fault.strerror}. Expected a "
            "file with the job's secret, the same on every rank. [secret]"
        ) from fault
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077 or status.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{_OPTION}: {str(path)!r} has the permissions {mode:03o} and the owner "
            f"{status.st_uid}. Expected a file that only the user {os.geteuid()}, who runs the job, can read: "
            f"`chmod 600 {path}`. [secret]"
        )
    if not content:
        raise ConfigurationError(f"{_OPTION}: {str(path)!r} is empty. Expected the job's secret. [secret]")
    return content
