"""``python -m paceline.launcher.hosts.remote_agent``: the agent that `paceline run --hosts` starts over ssh.

Speaks with the head through its standard input and output, and writes nothing else there. It learns what to run
from the head's first message.
"""

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.errors import EXIT_UNAVAILABLE, ConfigurationError
from paceline.launcher.event_loop import Result, in_background, interrupts
from paceline.launcher.existing_snapshots import kept_seed
from paceline.launcher.hosts.host_agent import HostAgent
from paceline.launcher.hosts.host_facts import comparable_facts
from paceline.launcher.hosts.interfaces import address_of_ssh, own_interfaces
from paceline.launcher.hosts.link import Link
from paceline.launcher.hosts.ssh_line import PREAMBLE
from paceline.launcher.hosts.ways import guarded_crew
from paceline.launcher.job import JobDescription, Program
from paceline.launcher.open_files import check_open_files
from paceline.launcher.preflight import refuse_snapshots_in
from paceline.launcher.workers.address_check import Probe
from paceline.rendezvous.agent_messages import Assignment, Here, HostFacts, Interface, Message, Unfit
from paceline.rendezvous.connection import Connection

_READ_BYTES = 1 << 16


async def serve(connected: socket.socket) -> int:
    """Serves the head on `connected`; the job's exit code."""
    loop = asyncio.get_running_loop()
    link = Link(loop, Connection(loop, connected))
    assigned: asyncio.Future[Assignment | None] = loop.create_future()

    def hear(message: Message) -> None:
        if isinstance(message, Assignment) and not assigned.done():
            assigned.set_result(message)

    link.start(hear, lambda _: None if assigned.done() else assigned.set_result(None))
    assignment = await assigned
    if assignment is None:
        return EXIT_UNAVAILABLE
    probe = Probe(loop, assignment.key)
    try:
        job = _job_of(assignment)
        interfaces = own_interfaces(job.options.network_interface or "", address_of_ssh(os.environ))
        facts = await _found_out(partial(_facts_of, job, interfaces, probe.port), link)
    except (OSError, ValueError) as fault:  # a ConfigurationError is a ValueError
        link.send(Unfit(_reason(fault)))
        link.close()
        return EXIT_UNAVAILABLE
    except asyncio.CancelledError:  # the head is gone
        return EXIT_UNAVAILABLE
    probe.start()
    takes_snapshots = job.options.snapshot_dir is not None
    agent = HostAgent(loop, link, facts, guarded_crew(loop, job, facts), probe, takes_snapshots=takes_snapshots)
    link.send(Here(facts))
    with interrupts(loop, agent.interrupted):
        code = await agent.run()
    probe.close()
    link.close()
    return code


def _facts_of(job: JobDescription, interfaces: tuple[Interface, ...], probe_port: int) -> HostFacts:
    """What this host brings to the job, if it can run its part of it at all."""
    check_open_files(job, is_one_of_hosts=True)
    facts = comparable_facts(job, interfaces, probe_port)
    directory = job.options.snapshot_dir
    if directory is None:
        return facts
    refuse_snapshots_in(directory)
    return replace(facts, kept_seed=kept_seed(directory))  # the head's own machine may not see it


async def _found_out(work: Callable[[], Result], link: Link) -> Result:
    """What `work` returns; a slow driver or store silences nobody, and is not waited for longer than the head waits.

    Raises:
        CancelledError: the head is gone.
    """
    looking = in_background(work)

    def lose(_: str) -> None:
        looking.cancel()

    link.attach(lambda _: None, lose)
    return await looking


def _job_of(assignment: Assignment) -> JobDescription:
    """Moves this process to the job's folder and environment."""
    os.environ.update(assignment.environment)
    os.chdir(assignment.directory)
    program = Program(assignment.script, assignment.arguments, assignment.is_module)
    if not program.is_module and not Path(program.target).exists():
        raise FileNotFoundError(f"{Path.cwd() / program.target} is not there")
    return JobDescription(
        command=program.command(),
        num_workers=assignment.num_workers,
        environment=dict(os.environ),
        roles=assignment.roles,
        options=read_variables(JobOptions, assignment.options),
        program=program,
    )


def _reason(fault: OSError | ValueError) -> str:
    if isinstance(fault, FileNotFoundError):
        what = f"has no {fault.filename!r}" if fault.filename else f"has no copy of the script: {fault}"
        return f"{what}. Copy the program to the same folder on every host, or share the folder"
    if isinstance(fault, ConfigurationError):
        return f"cannot take part: {fault}"
    return f"cannot take part: {type(fault).__name__}: {fault}"


def _bridged() -> socket.socket:
    """Standard input and output as one socket. Two threads carry the bytes: ssh may have given pipes."""
    ours, theirs = socket.socketpair()
    read, write = os.dup(0), os.dup(1)
    # What anything in this process prints by mistake must not get between the messages.
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)

    def carry_in() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(read, _READ_BYTES):
                theirs.sendall(data)
        with contextlib.suppress(OSError):
            theirs.shutdown(socket.SHUT_WR)

    def carry_out() -> None:
        with contextlib.suppress(OSError):
            while data := theirs.recv(_READ_BYTES):
                view = memoryview(data)
                while view:
                    view = view[os.write(write, view) :]
        with contextlib.suppress(OSError):
            os.close(write)

    os.write(write, PREAMBLE)
    threading.Thread(target=carry_in, name="from the head", daemon=True).start()
    carrier = threading.Thread(target=carry_out, name="to the head", daemon=True)
    carrier.start()
    return ours


def main() -> None:
    """Runs the agent."""
    sys.exit(asyncio.run(serve(_bridged())))


if __name__ == "__main__":
    main()
