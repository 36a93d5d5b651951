"""From the options of ``paceline run`` to the job that they describe."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from paceline.cluster import environment
from paceline.errors import ConfigurationError
from paceline.launcher.job import JobDescription, Program, Snapshots
from paceline.launcher.workers.host_resources import core_quota, num_workers_for, usable_cores, visible_gpus

if TYPE_CHECKING:
    from paceline.launcher.other_hosts import SeveralHosts

AUTO = "auto"

_Number = TypeVar("_Number", int, float)

_TELL_OF_OTHER_HOSTS = (
    environment.NNODES,
    environment.NODE_RANK,
    environment.RENDEZVOUS,
    "SLURM_JOB_ID",
    "JOB_COMPLETION_INDEX",
)
"""Without any of these variables, and without an option, the job is this host's; most are, and should start quickly."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Which hosts, and how ssh reaches them."""

    hosts: str | None
    hostfile: Path | None
    ssh_command: str
    ssh_port: int | None
    ssh_identity_file: str | None
    remote_python: str | None


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """This host's place among those that were given the same command."""

    nnodes: int | None
    node_rank: int | None
    rendezvous: str | None


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Where `fit` keeps snapshots, and how often; None: not given."""

    directory: str | None
    every: str | None
    keep: int | None


def make_job(
    program: Program,
    workers: str | None,
    host_options: HostOptions,
    node_options: NodeOptions,
    *,
    network_interface: str | None,
    forwarded: tuple[str, ...],
    require_secret: bool,
    bind: Literal["cores", "none"],
    log_dir: Path | None,
    start_timeout_seconds: float,
    seed: int | None,
    drop_in: bool,
    verbose: bool,
    allow_mismatch: bool,
    max_restarts: int,
    restart_window_seconds: float | None,
    snapshots: SnapshotOptions,
    hang_timeout_seconds: float | None,
    standby: bool,
) -> JobDescription:
    """The job.

    Raises:
        ConfigurationError: hosts, nodes or their secret are wrong.
        ValueError: another option is.
    """
    variables = dict(os.environ)
    if require_secret:
        variables[environment.REQUIRE_SECRET] = "1"
    _set_own(variables, forwarded)
    several = None
    if _concerns_others(host_options, node_options, variables):
        from paceline.cli.several_hosts import several_hosts

        several = several_hosts(host_options, node_options, variables)
    return JobDescription(
        command=program.command(),
        num_workers=_num_workers(workers, several, variables),
        environment=variables,
        bind=bind,
        log_dir=log_dir,
        start_timeout_seconds=start_timeout_seconds,
        seed=seed,
        drop_in=drop_in,
        verbose=verbose,
        program=program,
        hosts=several.hosts if several else (),
        ssh=several.ssh if several else None,
        nodes=several.nodes if several else None,
        forwarded=forwarded,
        network_interface=network_interface or variables.get(environment.NETWORK_INTERFACE, ""),
        allow_mismatch=allow_mismatch or variables.get(environment.ALLOW_MISMATCH) == "1",
        max_restarts=max_restarts,
        restart_window_seconds=restart_window_seconds,
        snapshots=snapshots_of(snapshots, variables),
        hang_timeout_seconds=_hang_timeout(hang_timeout_seconds, variables),
        standby=standby,
    )


def snapshots_of(options: SnapshotOptions, variables: Mapping[str, str]) -> Snapshots | None:
    """What the options about snapshots say, and the variables for those that are not given.

    A folder on this host is made absolute, for workers on others.

    Raises:
        ConfigurationError: a variable is wrong.
        ValueError: there is no folder, but other options about snapshots.
    """
    directory = options.directory if options.directory is not None else variables.get(environment.SNAPSHOT_DIR)
    if options.directory == "":
        raise ValueError('--snapshot-dir: received ""; expected a folder, or an object store\'s URL')
    if not directory:
        if options.every is not None or options.keep is not None:
            raise ValueError("--snapshot-every, --snapshot-keep: expected --snapshot-dir with them, which says where")
        return None
    return Snapshots(
        directory=directory if "://" in directory else str(Path(directory).absolute()),
        every=options.every if options.every is not None else variables.get(environment.SNAPSHOT_EVERY) or None,
        keep=options.keep if options.keep is not None else _number(environment.SNAPSHOT_KEEP, int, variables),
    )


def _hang_timeout(seconds: float | None, variables: Mapping[str, str]) -> float | None:
    return seconds if seconds is not None else _number(environment.HANG_TIMEOUT, float, variables)


def _number(name: str, read: Callable[[str], _Number], variables: Mapping[str, str]) -> _Number | None:
    text = variables.get(name)
    if not text:
        return None
    try:
        return read(text)
    except ValueError:
        raise ConfigurationError(f"{name}: received {text!r}; expected a number") from None


def _concerns_others(hosts: HostOptions, nodes: NodeOptions, variables: Mapping[str, str]) -> bool:
    asked = hosts.hosts is not None or hosts.hostfile is not None or nodes != NodeOptions(None, None, None)
    return asked or any(name in variables for name in _TELL_OF_OTHER_HOSTS)


def _num_workers(text: str | None, several: "SeveralHosts | None", variables: Mapping[str, str]) -> int:
    if text in (None, AUTO) and several and several.hosts:
        return sum(host.slots for host in several.hosts)
    if text is None:
        return 1
    if text == AUTO:
        return num_workers_for(usable_cores(), core_quota(), visible_gpus(variables))
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--workers: received {text!r}; expected a number from 1 on, or {AUTO}") from None


def _set_own(variables: dict[str, str], forwarded: tuple[str, ...]) -> None:
    """``--env NAME=VALUE`` holds for workers of this host, too."""
    for entry in forwarded:
        name, equals, value = entry.partition("=")
        if equals:
            variables[name] = value
