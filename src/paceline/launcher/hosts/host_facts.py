"""The facts about a host that its agent collects before it connects, and their comparison.

Versions of packages and a hash of the script are found in files, without importing them. Only jobs on several hosts
need them: finding out takes a moment.
"""

import hashlib
import importlib.util
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from paceline.cluster import job_options
from paceline.cluster.own_address import free_ports
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.host_resources import visible_gpus
from paceline.rendezvous.agent_messages import HostFacts, Interface
from paceline.wire import versions


def facts_of_this_host(job: JobDescription) -> HostFacts:
    """The facts of the only host of a job: nobody needs to reach it, or to compare it."""
    program = job.program
    return HostFacts(
        hostname=socket.gethostname(),
        machine_id=_machine_id(),
        pid=os.getpid(),
        node_rank=job.nodes.node_rank if job.nodes is not None else None,
        num_nodes=job.nodes.num_nodes if job.nodes is not None else None,
        num_workers=job.num_workers,
        versions={},
        script="",
        arguments=program.arguments if program is not None else (),
        ports=free_ports(job.most_ports),
        interfaces=(),
        probe_port=0,
        gpus=visible_gpus(job.environment),
        num_ps=job.options.ps or 0,
        num_data_workers=job.options.data_workers or 0,
    )


def _machine_id() -> str:
    """Equal for processes that can share memory: one boot of one machine, one namespace of shared memory, one name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        memory = str(Path("/proc/self/ns/ipc").readlink())
    except OSError:
        boot, memory = "", ""
    return f"{socket.gethostname()} {boot} {memory}"


def script_digest(script: str, *, is_module: bool) -> str:
    """Name and hash of what runs, equal on hosts that have the same; a module without a file has only its name.

    Raises:
        FileNotFoundError: there is no such script.
    """
    path = _module_file(script) if is_module else Path(script)
    if path is None:
        return script
    if path.is_dir():
        path /= "__main__.py"
    return f"{Path(script).name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def _module_file(name: str) -> Path | None:
    """The file of a module that is not in a package; to find others, Python would run their packages' code."""
    beside = Path.cwd() / f"{name}.py"
    if beside.exists():
        return beside
    if "." in name:
        return None
    specification = importlib.util.find_spec(name)
    origin = specification.origin if specification is not None else None
    return Path(origin) if origin and Path(origin).exists() else None


def comparable_facts(job: JobDescription, interfaces: tuple[Interface, ...], probe_port: int) -> HostFacts:
    """What this host brings to a job on several ones.

    Args:
        job: What this agent was asked to run.
        interfaces: Where peers may reach this host.
        probe_port: Where they may try.

    Raises:
        FileNotFoundError: the script is not there.
    """
    program = job.program
    assert program is not None
    return replace(
        facts_of_this_host(job),
        versions=versions.installed_versions(),
        script=script_digest(program.target, is_module=program.is_module),
        interfaces=interfaces,
        probe_port=probe_port,
    )


def differences(facts: Sequence[HostFacts]) -> tuple[str, ...]:
    """What differs between the first of `facts` and each other one, with both values and hosts."""
    first, *others = facts
    return tuple(
        text
        for other in others
        for text in versions.differences(
            _compared(other, first), other.hostname, _compared(first, other), first.hostname
        )
    )


def _compared(facts: HostFacts, other: HostFacts) -> dict[str, str]:
    compared = {
        **facts.versions,
        "the script": facts.script,
        "the script's command line": " ".join(facts.arguments) or "none",
    }
    if facts.num_nodes is not None and other.num_nodes is not None:
        compared["--nnodes"] = str(facts.num_nodes)
    return compared


def mismatch_text(found: Sequence[str]) -> str:
    """The sentence for the user."""
    return (
        f"the hosts differ: {'; '.join(found)}. Make them equal, or add --allow-mismatch "
        f"({job_options.ALLOW_MISMATCH}=1) to run with these differences. [hosts-differ]"
    )
