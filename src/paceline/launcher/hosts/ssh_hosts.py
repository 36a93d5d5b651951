"""A job with ``--hosts``: starts an agent on each host over ssh.

Hosts behind the last one that is needed are spares: they are asked only when another one does not come.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from paceline.cluster import environment
from paceline.cluster.hosts import HostSlots, place_ranks
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import Use, rows
from paceline.errors import EXIT_CONFIGURATION, ConfigurationError
from paceline.launcher.hosts.gathering import Gathering, Member, NotGatheredError
from paceline.launcher.hosts.host_facts import differences, mismatch_text
from paceline.launcher.hosts.interfaces import reached_interfaces
from paceline.launcher.hosts.link import Link
from paceline.launcher.hosts.remote_crew import RemoteCrew
from paceline.launcher.hosts.ssh_line import (
    AgentProcess,
    NotStartedError,
    agent_command,
    end_agent,
    is_this_host,
    ssh_command,
    start_agent,
)
from paceline.launcher.job import JobDescription
from paceline.launcher.other_hosts import SshOptions
from paceline.launcher.workers.crew import Crew
from paceline.launcher.workers.guard_line import GuardLine
from paceline.rendezvous.agent_messages import Assignment, Here, HostFacts, Interface, Message, Unfit
from paceline.rendezvous.connection import Connection

KEY_BYTES = 32
_END_SECONDS = 3.0
_RETRY_SECONDS = 2.0

_FORWARDED_PREFIXES = ("PACELINE_", "TF_", "KERAS_", "UCX_", "MPIR_CVAR_", "FI_")
_NOT_FORWARDED = frozenset(
    {
        environment.TF_CONFIG,
        environment.TASK,
        environment.RANK,
        environment.WORLD_SIZE,
        environment.LOCAL_RANK,
        environment.LOCAL_WORLD_SIZE,
        environment.GENERATION,
        environment.JOB_ID,
        environment.AGENT_ID,
        environment.JOB_DIRECTORY,
        environment.CPUS,
        environment.LIVE_LINE,
        environment.AGENT_FD,
        environment.PMI_FD,
        environment.TOLD,
        *(option.variable for option in rows(JobOptions)),  # hosts are told what the head has made of them
    }
)


def forwarded_environment(variables: Mapping[str, str], wanted: Sequence[str]) -> dict[str, str]:
    """What other hosts are told: settings of Paceline, TensorFlow, Keras and MPI, and what the user names. Pure.

    >>> forwarded_environment({"TF_CPP_MIN_LOG_LEVEL": "2", "HOME": "/home/ann", "RUN": "7"}, ["RUN"])
    {'TF_CPP_MIN_LOG_LEVEL': '2', 'RUN': '7'}
    """
    return {
        name: value
        for name, value in variables.items()
        if name in wanted or (name.startswith(_FORWARDED_PREFIXES) and name not in _NOT_FORWARDED)
    }


def working_directory(variables: Mapping[str, str]) -> str:
    """This process's folder by the name that the user's shell has for it, which other hosts are likelier to know than
    the one behind a symbolic link.
    """
    name = variables.get("PWD", "")
    with contextlib.suppress(OSError):
        if Path(name).is_absolute() and Path(name).samefile(Path.cwd()):
            return name
    return str(Path.cwd())


class SshHosts(Gathering):
    """The hosts of ``--hosts`` or ``--hostfile``.

    Args:
        loop: The running event loop.
        job: The job.
        guard: Is told the process ids of agents and of ssh.
        say: Prints a line for the user.

    Raises:
        ConfigurationError: the hosts have too few slots, or a setting is wrong.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, job: JobDescription, guard: GuardLine, say: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._job = job
        self._guard = guard
        self._say = say
        self._key = os.urandom(KEY_BYTES)
        place_ranks(job.hosts, job.num_workers)
        self._environment = forwarded_environment(job.environment, job.forwarded)
        self._agents: dict[str, AgentProcess] = {}
        self._crews: dict[str, RemoteCrew] = {}
        self._interfaces: dict[Crew, Interface] = {}

    async def gather(self, generation: int) -> tuple[Member, ...]:
        """See `Gathering.gather`."""
        deadline = self._loop.time() + self._job.start_timeout_seconds
        await asyncio.gather(*(self._dismiss(host) for host, crew in list(self._crews.items()) if crew.is_lost))
        absent: dict[str, str] = {}
        while True:
            usable = [host for host in self._job.hosts if host.host not in absent]
            try:
                used, _ = place_ranks(usable, self._job.num_workers) if usable else ((), ())
            except ConfigurationError:
                used = ()
            if not used:
                if generation == 1 or self._loop.time() > deadline:
                    raise NotGatheredError(
                        [f"paceline: host {host} {_closed(reason)}" for host, reason in absent.items()]
                    )
                absent = {}  # it may come back
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            failed = await self._connect([one.host for one in used if one.host not in self._crews])
            for host, reason in failed.items():
                if len(usable) > len(used):
                    self._say(f"host {host} {reason}; a spare takes its place")
            absent |= failed
            if not failed:
                return await self._members(used)

    async def _members(self, used: Sequence[HostSlots]) -> tuple[Member, ...]:
        crews = [self._crews[one.host] for one in used]
        self._compare([crew.facts for crew in crews])
        interfaces = await reached_interfaces(crews, self._interfaces, self._key)
        return tuple(
            Member(crew, one.slots, interface) for crew, one, interface in zip(crews, used, interfaces, strict=True)
        )

    def _compare(self, facts: Sequence[HostFacts]) -> None:
        found = differences(facts)
        if not found:
            return
        if not self._job.options.allow_mismatch:
            raise NotGatheredError([f"paceline: {mismatch_text(found)}"], EXIT_CONFIGURATION)
        self._say(f"the hosts differ, as --allow-mismatch permits: {'; '.join(found)}")

    async def _connect(self, hosts: Sequence[str]) -> dict[str, str]:
        """Starts agents; by host why there is none."""
        results = await asyncio.gather(*(self._connect_one(host) for host in hosts))
        return {host: reason for host, reason in zip(hosts, results, strict=True) if reason}

    async def _connect_one(self, host: str) -> str:
        options = self._job.ssh or SshOptions()
        if is_this_host(host):
            python = sys.executable
            command = agent_command(python)
        else:
            python = options.python
            command = ssh_command(host, options)
        seconds = self._job.start_timeout_seconds
        try:
            # No mark of the job: the agents of one machine, which end what is marked, would end each other.
            agent = await start_agent(command, python, seconds, self._guard)
        except NotStartedError as fault:
            return str(fault)
        self._agents[host] = agent
        slots = next(one.slots for one in self._job.hosts if one.host == host)
        try:
            self._crews[host] = await self._introduced(agent, slots, seconds)
        except (ConnectionError, TimeoutError) as fault:
            await self._end(host, _END_SECONDS)
            return str(fault) or f"did not report its software versions within {seconds:g} s"
        return ""

    async def _introduced(self, agent: AgentProcess, slots: int, seconds: float) -> RemoteCrew:
        """The crew of an agent that has just started.

        Raises:
            ConnectionError: the agent cannot take part; the message completes "host a …".
        """
        link = Link(self._loop, Connection(self._loop, agent.connected, agent.splitter), agent.last_words.after)
        answer: asyncio.Future[RemoteCrew] = self._loop.create_future()

        def hear(message: Message) -> None:
            if answer.done():
                return
            if isinstance(message, Here):
                # Here, not after the wait: what the agent says next must find the crew.
                answer.set_result(RemoteCrew(link, message.facts, shows_own_output=False))
            elif isinstance(message, Unfit):
                answer.set_exception(ConnectionError(message.reason))

        def lose(reason: str) -> None:
            if not answer.done():
                answer.set_exception(ConnectionError(reason))

        link.start(hear, lose)
        link.send(self._assignment(slots))
        try:
            return await asyncio.wait_for(answer, seconds)
        except BaseException:
            link.close()
            raise

    def _assignment(self, slots: int) -> Assignment:
        program = self._job.program
        assert program is not None
        return Assignment(
            num_workers=slots,
            script=program.target,
            arguments=program.arguments,
            is_module=program.is_module,
            directory=working_directory(self._job.environment),
            environment=self._environment,
            options=self._job.options.to_variables(Use.HOSTS, Use.WORKERS, Use.RANKS),
            key=self._key,
            roles=self._job.roles,
        )

    async def _dismiss(self, host: str) -> None:
        crew = self._crews.pop(host)
        self._interfaces.pop(crew, None)
        crew.close()
        await self._end(host, 0.0 if crew.is_lost else _END_SECONDS)

    async def _end(self, host: str, seconds: float) -> None:
        agent = self._agents.pop(host)
        await asyncio.to_thread(end_agent, agent, seconds, self._guard)

    def tell(self, lines: Sequence[str]) -> None:
        """See `Gathering.tell`: the only user reads the head's own words."""

    def show_life(self) -> None:
        """See `Gathering.show_life`."""
        for crew in self._crews.values():
            crew.show_life()

    async def close(self, exit_code: int) -> None:
        """See `Gathering.close`."""
        for crew in self._crews.values():
            crew.dismiss(exit_code)
        await asyncio.gather(*(self._dismiss(host) for host in list(self._crews)))
        await asyncio.gather(*(self._end(host, 0.0) for host in list(self._agents)))  # those that were just coming


def _closed(reason: str) -> str:
    """`reason` as the end of a sentence that closes with its code."""
    return reason if reason.endswith("]") else f"{reason}. [host-unreachable]"
