"""What this host has for a job, measured in about half a second. Changes nothing, and sends nothing to others."""

import os
import re
import shutil
import socket
import tempfile
import time
from importlib import metadata
from pathlib import Path

import psutil

from paceline.cluster import job_directory
from paceline.cluster.control_groups import core_quota, free_memory_bytes, memory_bytes
from paceline.cluster.spec import LOCAL_HOST
from paceline.doctor.records import AskCondition, Condition, Disk, Port
from paceline.launcher.hosts.interfaces import address_of_ssh, own_interfaces
from paceline.launcher.workers.host_resources import num_workers_for, usable_cores, visible_gpus
from paceline.wire.versions import installed_versions, version_of

SNAPSHOTS, TEMPORARY = "snapshots", "temporary files"

_CORES = Path("/sys/devices/system/cpu")
_TIMES = Path("/proc/stat")
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_STEAL_COLUMN = 8
_WINDOW_SECONDS = 0.5
"""Over so long the time of the processors is looked at."""

_PORT_SECONDS = 1.0
_KERNEL_TRIES = 7
_KERNEL_ROUNDS = 200_000
_REQUIRED = {"TensorFlow": "tensorflow-cpu", "Keras": "keras", "MPICH": "mpich", "mpi4py": "mpi4py"}
"""By program: its name where Paceline's own package says what it needs."""


def condition(asked: AskCondition) -> Condition:
    """What this host has."""
    began, before = time.monotonic(), _processor_ticks()
    cores, quota, gpus = usable_cores(), core_quota(), visible_gpus(os.environ)
    shared_free, shared_all = _room_of(job_directory.DIRECTORY)
    directories = {SNAPSHOTS: asked.snapshot_dir, TEMPORARY: tempfile.gettempdir()}
    kernel_seconds = min(_kernel_seconds() for _ in range(_KERNEL_TRIES))
    lowest, outgoing = _lowest_versions(), _num_outgoing_ports()
    time.sleep(max(0.0, began + _WINDOW_SECONDS - time.monotonic()))
    stolen, passed = (after - first for after, first in zip(_processor_ticks(), before, strict=True))
    return Condition(
        hostname=socket.gethostname(),
        versions={**installed_versions(), "mpi4py": version_of("mpi4py")},
        lowest_versions=lowest,
        cores=cores,
        num_all_cores=os.cpu_count() or len(cores),
        core_quota=quota,
        num_numa_nodes=_num_numa_nodes(cores),
        num_gpus=len(gpus),
        num_workers=asked.num_workers or num_workers_for(cores, quota, gpus),
        load=os.getloadavg()[0],
        kernel_seconds=kernel_seconds,
        steal_share=stolen / passed if passed > 0 else 0.0,
        memory_free_bytes=free_memory_bytes(psutil.virtual_memory().available),
        memory_bytes=memory_bytes(),
        shared_memory_free_bytes=shared_free,
        shared_memory_bytes=shared_all,
        disks=tuple(_disk(use, path) for use, path in directories.items() if path),
        ports=tuple(_port(address) for address in _addresses()),
        num_outgoing_ports=outgoing,
    )


def _lowest_versions() -> dict[str, str]:
    """What the installed Paceline says of the programs that it needs."""
    try:
        requirements = metadata.requires("paceline") or []
    except metadata.PackageNotFoundError:  # run from a checkout
        requirements = []
    found = (re.match(r"([\w.-]+)[^;]*>=([\d.]+)", one) for one in requirements)
    lowest = {match[1]: match[2] for match in found if match}
    return {program: lowest[name] for program, name in _REQUIRED.items() if name in lowest}


def _processor_ticks() -> tuple[int, int]:
    """Of all processors since the machine has started: the time that other virtual machines took, and all time."""
    try:
        ticks = [int(word) for word in _TIMES.read_text().partition("\n")[0].split()[1:]]
    except (OSError, ValueError):
        return 0, 0
    counted = ticks[:_STEAL_COLUMN]  # what guests take is in another column already
    return (counted[-1] if len(counted) == _STEAL_COLUMN else 0), sum(counted)


def _kernel_seconds() -> float:
    """Processor time, in which waiting for a core is not counted: the load tells of that."""
    began = time.thread_time()
    total = 0
    for number in range(_KERNEL_ROUNDS):
        total += number * number % 7
    return time.thread_time() - began


def _num_numa_nodes(cores: tuple[int, ...]) -> int:
    nodes = {node.name for core in cores for node in (_CORES / f"cpu{core}").glob("node[0-9]*")}
    return max(1, len(nodes))


def _room_of(directory: Path) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return 0, 0
    return usage.free, usage.total


def _disk(use: str, path: str) -> Disk:
    """The disk on which `path` is, or will be once a job has made it."""
    there = Path(path).absolute()
    existing = next(one for one in (there, *there.parents) if os.access(one, os.F_OK) or one == one.parent)
    free, total = _room_of(existing)
    fault = ""
    if not existing.is_dir():
        fault = f"{existing} is not a directory"
    elif not os.access(existing, os.W_OK | os.X_OK):
        fault = f"{existing} cannot be written by this user"
    return Disk(use, path, free, total, fault)


def _addresses() -> list[str]:
    """Of this host, its loopback last, also if it is down."""
    return list(dict.fromkeys([*(one.address for one in own_interfaces("", address_of_ssh(os.environ))), LOCAL_HOST]))


def _port(address: str) -> Port:
    try:
        with socket.create_server((address, 0)) as port, socket.create_connection(port.getsockname(), _PORT_SECONDS):
            return Port(address, "")
    except OSError as fault:
        return Port(address, fault.strerror or str(fault))


def _num_outgoing_ports() -> int:
    try:
        lowest, highest = map(int, _OUTGOING.read_text().split())
    except (OSError, ValueError):
        return 0
    return highest - lowest + 1
