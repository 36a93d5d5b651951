"""What the doctor says of a host: findings from what was measured. Pure; `comparisons.py` has those between hosts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from paceline.cluster.spec import LOCAL_HOST
from paceline.doctor.records import Condition, Disk
from paceline.plan.byte_text import byte_text
from paceline.wire.versions import NOT_INSTALLED

Severity = Literal["ok", "warning", "error"]
"""error: a job could not run; warning: it could, but slowly, or not for long."""

SHARED_BYTES_OF_WORKER = 8 << 20
"""What MPI and the windows of collectives take of ``/dev/shm`` for each worker."""

WORKER_BYTES, GOOD_WORKER_BYTES = 512 << 20, 2 << 30
"""Memory of a worker with TensorFlow, without a model and with one of some size."""

GOOD_DISK_BYTES, LEAST_DISK_BYTES = 1 << 30, 16 << 20
MAX_STEAL_SHARE = 0.05
MAX_LOAD_OF_CORE = 1.5
"""Programs for each core: above, workers wait for those of others."""

LEAST_OUTGOING_PORTS = 1000
_NEEDED = {"TensorFlow": "tensorflow-cpu", "Keras": "keras", "MPICH": "mpich", "mpi4py": "mpi4py"}
"""By program, its name for pip."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the doctor says."""

    severity: Severity
    check: str
    text: str
    """What was found, and why that matters."""
    fix: str = ""
    """What to do, in one sentence; empty where nothing is wrong."""
    host: str = ""
    """Which host it is about; empty: several, or the network between them."""


def can_run(findings: Iterable[Finding]) -> bool:
    """Whether a job could run."""
    return all(one.severity != "error" for one in findings)


def findings_of(has: Condition) -> tuple[Finding, ...]:
    """What is to be said of a host by itself; of checks in which all is well, too."""
    checks = (_cores(has), _load(has), _steal(has), _memory(has), _shared_memory(has))
    return (*_versions(has), *checks, *map(_disk, has.disks), *_ports(has))


def requirement(program: str, version: str) -> str:
    """What to give to pip.

    >>> requirement("TensorFlow", "==2.21.0"), requirement("Paceline", "")
    ("'tensorflow-cpu==2.21.0'", "'paceline'")
    """
    return f"'{_NEEDED.get(program, program.lower())}{version}'"


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "core"), counted(1000, "core")
    ('1 core', '1,000 cores')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def is_older(version: str, lowest: str) -> bool:
    """Whether `version` is before `lowest`; of one that is no number nothing is known.

    >>> is_older("2.9.1", "2.17"), is_older("2.17.0", "2.17"), is_older("2.22.0-dev20260101", "2.17")
    (True, False, False)
    """
    found, least = _numbers(version), _numbers(lowest)
    return bool(found) and found < least


def _numbers(version: str) -> tuple[int, ...]:
    words = version.split(".")
    first_other = next((at for at, word in enumerate(words) if not word.isdecimal()), len(words))
    return tuple(map(int, words[:first_other]))


def _versions(has: Condition) -> list[Finding]:
    faults = []
    for name in _NEEDED:
        found, lowest = has.versions.get(name, NOT_INSTALLED), has.lowest_versions.get(name, "")
        if found == NOT_INSTALLED or (lowest and is_older(found, lowest)):
            text = f"{name} is {found}, and Paceline needs {lowest or 'it'}{' or newer' if lowest else ''}."
            fix = f"Type: pip install {requirement(name, f'>={lowest}' if lowest else '')}"
            faults.append(Finding("error", "versions", text, fix))
    installed = [f"{name} {number}" for name, number in has.versions.items() if number != NOT_INSTALLED]
    return faults or [Finding("ok", "versions", ", ".join(installed))]


def _cores(has: Condition) -> Finding:
    if has.core_quota is not None and has.core_quota < 1:
        text = f"The control group allows the time of {has.core_quota:.2g} cores: a worker must stop again and again."
        return Finding("warning", "cores", text, "Allow whole cores, in a container with: docker run --cpus 2")
    usable = min(len(has.cores), int(has.core_quota or len(has.cores)))
    if usable < has.num_workers and not has.num_gpus:
        text = f"{counted(has.num_workers, 'worker')} would share {counted(usable, 'core')}: they compute in turns."
        return Finding("warning", "cores", text, f"Give this host fewer workers in --hosts, {usable} at most.")
    cores = f"{len(has.cores)} of {counted(has.num_all_cores, 'core')}"
    quota = "no quota" if has.core_quota is None else f"a quota of {has.core_quota:.3g}"
    gpus = counted(has.num_gpus, "GPU") if has.num_gpus else "no GPU"
    parts = (cores, quota, counted(has.num_numa_nodes, "NUMA node"), gpus)
    return Finding("ok", "cores", f"{', '.join(parts)}, for {counted(has.num_workers, 'worker')}")


def _load(has: Condition) -> Finding:
    text = f"{has.load:.1f} programs compute on {counted(has.num_all_cores, 'core')} of this host"
    if has.load <= MAX_LOAD_OF_CORE * has.num_all_cores:
        return Finding("ok", "load", f"{text}; a core took {has.kernel_seconds * 1000:.1f} ms for the test")
    text += ": workers must wait for cores, and every step waits for the slowest worker."
    return Finding("warning", "load", text, "Find the other programs with `top`, and end them or wait for their end.")


def _steal(has: Condition) -> Finding:
    text = f"other virtual machines took {has.steal_share:.0%} of the processor time"
    if has.steal_share <= MAX_STEAL_SHARE:
        return Finding("ok", "steal", text)
    fix = "Move the job to a machine with cores of its own (a dedicated instance), or to another hour."
    return Finding("warning", "steal", f"{text}, so workers stand still at times.", fix)


def _memory(has: Condition) -> Finding:
    text = f"{byte_text(has.memory_free_bytes)} free of {byte_text(has.memory_bytes)}"
    fix = "End other programs, or raise the limit of the container: docker run --memory 8g"
    if has.memory_free_bytes < WORKER_BYTES:
        text += f": too little for one worker, which needs {byte_text(WORKER_BYTES)} without a model."
        return Finding("error", "memory", text, fix)
    room = max(1, has.memory_free_bytes // GOOD_WORKER_BYTES)
    if has.memory_free_bytes >= GOOD_WORKER_BYTES * has.num_workers:
        return Finding("ok", "memory", text)
    if room < has.num_workers:
        fix = f"Start fewer workers, {room} at most, end other programs, or raise the limit of the container."
    text += f": little for {counted(has.num_workers, 'worker')}, which use 2 GB each with a model of some size."
    return Finding("warning", "memory", text, fix)


def _shared_memory(has: Condition) -> Finding:
    text = f"{byte_text(has.shared_memory_free_bytes)} free of {byte_text(has.shared_memory_bytes)}"
    needed = has.num_workers * SHARED_BYTES_OF_WORKER
    if has.shared_memory_free_bytes >= needed:
        return Finding("ok", "/dev/shm", text)
    text += (
        f": {counted(has.num_workers, 'worker')} need {byte_text(needed)}, or communicate over TCP, which is slower."
    )
    return Finding("warning", "/dev/shm", text, "Give the container more shared memory: docker run --shm-size=1g")


def _disk(disk: Disk) -> Finding:
    option = "--snapshot-dir" if disk.use == "snapshots" else "TMPDIR"
    if disk.fault:
        fix = f"Name a directory that this user can write with {option}, or change its owner: ls -ld {disk.path}"
        return Finding("error", "disk", f"{disk.path} is for {disk.use}, and {disk.fault}.", fix)
    text = f"{disk.path} for {disk.use}: {byte_text(disk.free_bytes)} free of {byte_text(disk.total_bytes)}"
    fix = f"Name another directory with {option}, or free some space: du -sh {disk.path}"
    if disk.free_bytes < LEAST_DISK_BYTES:
        return Finding("error", "disk", f"{text}. The disk is full.", fix)
    if disk.free_bytes < GOOD_DISK_BYTES:
        return Finding("warning", "disk", f"{text}. The disk may be full before the job ends.", fix)
    return Finding("ok", "disk", text)


def _ports(has: Condition) -> list[Finding]:
    faults = []
    for port in (one for one in has.ports if one.fault):
        text = f"No port can be opened and reached on {port.address} ({port.fault}): workers could not connect."
        if port.address == LOCAL_HOST:  # then no other address of this host is reached from here either
            return [Finding("error", "ports", text, "Bring the interface up: ip link set lo up")]
        faults.append(Finding("warning", "ports", text, "Look at the interfaces and the firewall: ip address"))
    num_ports = counted(has.num_outgoing_ports, "port")
    if 0 < has.num_outgoing_ports < LEAST_OUTGOING_PORTS:
        text = f"The kernel gives only {num_ports} to connections: a job of many workers needs more."
        fix = "Allow more: sysctl -w net.ipv4.ip_local_port_range='32768 60999'"
        faults.append(Finding("warning", "ports", text, fix))
    addresses = ", ".join(port.address for port in has.ports)
    return faults or [Finding("ok", "ports", f"can listen on {addresses}, with {num_ports} for connections")]
