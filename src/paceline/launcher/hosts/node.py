"""A node other than node 0, started with ``--nnodes``: connects to node 0 and serves it.

DIALLING ──node 0 answers──► SERVING ──Over──► the exit code
    ▲                            │
    └── node 0 is gone, and restarts are allowed ──┘
"""

import asyncio
import signal
import sys
from contextlib import ExitStack

from paceline.errors import EXIT_UNAVAILABLE
from paceline.launcher.event_loop import interrupts
from paceline.launcher.generations import report
from paceline.launcher.generations.decisions import exit_code_between
from paceline.launcher.hosts.host_agent import HostAgent
from paceline.launcher.hosts.host_facts import comparable_facts
from paceline.launcher.hosts.interfaces import own_interfaces
from paceline.launcher.hosts.link import Link
from paceline.launcher.hosts.node_hosts import WAITING_INTERVAL_SECONDS
from paceline.launcher.hosts.ways import guarded_crew
from paceline.launcher.job import JobDescription
from paceline.launcher.other_hosts import Nodes
from paceline.launcher.output.screen import Screen
from paceline.launcher.output.text_stream import TextOutput
from paceline.launcher.output.usual_lines import asks_for_all
from paceline.launcher.output.worker_logs import WorkerLogs
from paceline.launcher.output.worker_output import OwnOutput
from paceline.launcher.workers.address_check import Probe
from paceline.rendezvous.agent_messages import Here
from paceline.rendezvous.connection import Connection
from paceline.rendezvous.dialing import OTHER_JOB, OTHER_PROGRAM, REFUSED, Reached, UnreachableError, dial

_RETRY_SECONDS = 0.5
_DIAL_SECONDS = 5.0
_ANOTHER_JOB = (
    "another job listens there, or node 0 was started with another secret or, without a secret, another "
    "--nnodes or --rendezvous"
)


class NotMetError(Exception):
    """Node 0 did not answer in time, or is another version; the message is for the user."""


class Node:
    """Runs one node's part of a job.

    Args:
        job: The job, as it was given to this host.
        nodes: This host's place, which is not 0.
    """

    def __init__(self, job: JobDescription, nodes: Nodes) -> None:
        self._job = job
        self._nodes = nodes
        stdout, stderr = (TextOutput(stream, job.environment, self._show_life) for stream in (sys.stdout, sys.stderr))
        self._logs = WorkerLogs(job.options.log_dir, self._say)
        self._screen = Screen(stdout, stderr, shows_all=asks_for_all(job.environment))
        self._link: Link | None = None
        self._agent: HostAgent | None = None
        self._dialling: asyncio.Task[Reached] | None = None
        self._signal: signal.Signals | None = None
        self._takes_snapshots = job.options.snapshot_dir is not None

    async def run(self) -> int:
        """Serves the job to its end; its exit code."""
        loop = asyncio.get_running_loop()
        with ExitStack() as lifetimes:
            lifetimes.enter_context(interrupts(loop, self._interrupt))
            own_output = OwnOutput(loop, self._screen, lifetimes.enter_context(self._logs))
            while True:
                self._dialling = loop.create_task(self._dialled(loop))
                try:
                    reached = await self._dialling
                except NotMetError as fault:
                    self._say(str(fault))
                    return EXIT_UNAVAILABLE
                except asyncio.CancelledError:
                    assert self._signal is not None
                    self._tell(report.stopped_text(self._signal))
                    return exit_code_between(self._signal, takes_snapshots=self._takes_snapshots)
                finally:
                    self._dialling = None
                code, again = await self._serve(loop, reached, own_output)
                if not again:
                    return code

    async def _serve(
        self, loop: asyncio.AbstractEventLoop, reached: Reached, own_output: OwnOutput
    ) -> tuple[int, bool]:
        """Serves one head; the exit code, and whether there may be another one."""
        link = self._link = Link(loop, Connection(loop, reached.connected, reached.splitter, reached.seal))
        probe = Probe(loop, self._nodes.key)
        interfaces = own_interfaces(self._job.options.network_interface or "", reached.connected.getsockname()[0])
        facts = comparable_facts(self._job, interfaces, probe.port)
        probe.start()
        crew = guarded_crew(loop, self._job, facts)
        agent = self._agent = HostAgent(loop, link, facts, crew, probe, own_output, self._takes_snapshots)
        link.start(agent.hear, agent.lose)
        link.send(Here(facts))
        code = await agent.run()
        probe.close()
        self._agent = None
        self._takes_snapshots = self._takes_snapshots or agent.takes_snapshots
        link.close()
        if agent.denied_because is not None:
            self._say(agent.denied_because)
            return code, False
        if agent.lost_because is None:
            return code, False
        where = f"node 0 (host {reached.identity.hostname}, {self._nodes.rendezvous})"
        again = self._job.options.max_restarts > 0 and not self._signal
        then = "; waiting for node 0 to come back" if again else ", so the workers of this node were stopped"
        self._say(f"{where} {agent.lost_because}{then}. [host-lost]")
        if self._signal is not None:  # the head was to end the job with this code
            code = exit_code_between(self._signal, takes_snapshots=self._takes_snapshots)
        return code, again

    async def _dialled(self, loop: asyncio.AbstractEventLoop) -> Reached:
        """A connection to node 0.

        Raises:
            NotMetError: it did not answer in time.
        """
        started = loop.time()
        deadline = started + self._job.start_timeout_seconds
        next_line = started + WAITING_INTERVAL_SECONDS
        met = ""  # who was there last; an empty port tells less
        while True:
            try:
                return await asyncio.to_thread(dial, self._nodes.rendezvous, self._nodes.key, _DIAL_SECONDS)
            except UnreachableError as fault:
                if fault.is_other_version:
                    raise NotMetError(
                        f"node {self._nodes.node_rank} cannot join node 0 at {self._nodes.rendezvous}: {fault.reason}."
                        " [hosts-differ]"
                    ) from fault
                reason = _ANOTHER_JOB if fault.reason == OTHER_JOB else fault.reason
            # A job that ends while it is asked looks like another program; what it said before is what it was.
            if reason != REFUSED and not (met and reason == OTHER_PROGRAM):
                met = reason
            now = loop.time()
            who = f"node {self._nodes.node_rank}"
            before = f"; before: {met}" if met not in ("", reason) else ""
            if now >= deadline:
                raise NotMetError(
                    f"{who} did not reach node 0 at {self._nodes.rendezvous} within "
                    f"{self._job.start_timeout_seconds:g} s ({reason}{before}). Is node 0 running, with the same "
                    "--rendezvous? --start-timeout sets how long to wait. [start-timeout]"
                )
            if now >= next_line:
                next_line = now + WAITING_INTERVAL_SECONDS
                self._say(f"{who} waits for node 0 at {self._nodes.rendezvous} ({reason}); {deadline - now:.0f} s left")
            await asyncio.sleep(_RETRY_SECONDS)

    def _show_life(self) -> None:
        if self._link is not None:
            self._link.show_life()

    def _interrupt(self, number: signal.Signals) -> None:
        self._signal = number
        if self._agent is not None:
            self._agent.interrupted(number)
        elif self._dialling is not None:
            self._dialling.cancel()

    def _say(self, text: str) -> None:
        self._tell(f"paceline: {text}")

    def _tell(self, line: str) -> None:
        self._screen.say([line])
        self._logs.note([line])


def run_node(job: JobDescription, nodes: Nodes) -> int:
    """Runs this host's part of `job`, which has been checked; the job's exit code. No process of it is left here.

    Raises:
        ConfigurationError: a setting is wrong; nothing has been started.
    """
    # A name that this host has not is refused before anybody waits.
    own_interfaces(job.options.network_interface or "", "")
    return asyncio.run(Node(job, nodes).run())
