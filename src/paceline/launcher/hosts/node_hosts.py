"""A job with ``--nnodes``: the same command was given on each host."""

import asyncio
import socket
from collections.abc import Callable

from paceline.cluster.own_address import check_own_address
from paceline.errors import EXIT_CONFIGURATION, EXIT_UNAVAILABLE, ConfigurationError
from paceline.launcher.hosts.arriving_hosts import ArrivingHosts
from paceline.launcher.hosts.gathering import Member, NotGatheredError
from paceline.launcher.hosts.host_facts import comparable_facts, differences, mismatch_text
from paceline.launcher.hosts.interfaces import own_interfaces, reached_interfaces
from paceline.launcher.hosts.link import close_all
from paceline.launcher.job import JobDescription
from paceline.launcher.other_hosts import Nodes
from paceline.launcher.workers.address_check import Probe
from paceline.launcher.workers.crew import Crew
from paceline.launcher.workers.local_crew import LocalCrew
from paceline.rendezvous.agent_messages import Here, HostFacts, Interface, Refused
from paceline.rendezvous.listener import open_port
from paceline.wire.versions import other_paceline

WAITING_INTERVAL_SECONDS = 10.0


class NodeHosts(ArrivingHosts):
    """The hosts that ``--nnodes`` counts: node 0 is the head, and the agents of the other nodes connect to it.

    Args:
        loop: The running event loop.
        job: The job, as it was given to this host.
        nodes: This host's place, which is 0.
        local_crew: Makes this host's own crew from its facts.
        say: Prints a line for the user.

    Raises:
        ConfigurationError: the rendezvous cannot be served here.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        job: JobDescription,
        nodes: Nodes,
        local_crew: Callable[[HostFacts], LocalCrew],
        say: Callable[[str], None],
    ) -> None:
        port = _open_rendezvous(nodes)
        self._job = job
        self._nodes = nodes
        self._say = say
        self._probe = Probe(loop, nodes.key)
        self._probe.start()
        interfaces = own_interfaces(job.options.network_interface or "", _address_of(nodes.rendezvous.host))
        facts = comparable_facts(job, interfaces, self._probe.port)
        self._own_crew = local_crew(facts)
        self._interfaces: dict[Crew, Interface] = {}
        self._num_workers: dict[int, int] = {}
        """By node, how many have taken part in a generation: the job's ranks are counted once."""
        self._foreign = ""
        super().__init__(loop, num_hosts=nodes.num_nodes, key=nodes.key, port=port, hostname=facts.hostname)

    async def gather(self, generation: int) -> tuple[Member, ...]:
        """See `Gathering.gather`."""
        del generation
        started = self._loop.time()
        deadline = started + self._job.start_timeout_seconds
        next_line = started + WAITING_INTERVAL_SECONDS
        for rank in [rank for rank, crew in self._crews.items() if crew.is_lost]:
            self._interfaces.pop(self._crews.pop(rank), None)
        self._failure = None  # of a host that came while the last generation ran
        while self._missing:
            if self._failure is not None:
                raise NotGatheredError([f"paceline: {self._failure.message}"], EXIT_CONFIGURATION)
            now = self._loop.time()
            if now >= deadline:
                raise NotGatheredError(
                    [f"{self._missing_text('paceline: not all nodes connected in time:')} [start-timeout]"]
                )
            if now >= next_line:
                next_line = now + WAITING_INTERVAL_SECONDS
                line = f"{self._missing_text('waiting:')} {deadline - now:.0f} s left"
                self._say(line)
                self.tell([f"paceline: {line}"])
            await self._until_changed(min(next_line, deadline) - now)
        crews = self._all_crews(self._own_crew)
        interfaces = await reached_interfaces(crews, self._interfaces, self._nodes.key)
        self._probe.close()
        self._num_workers = {rank: crew.facts.num_workers for rank, crew in self._crews.items()}
        return tuple(
            Member(crew, crew.facts.num_workers, interface) for crew, interface in zip(crews, interfaces, strict=True)
        )

    async def close(self, exit_code: int) -> None:
        """See `Gathering.close`."""
        self._probe.close()
        self._listener.close()
        self._own_crew.close()
        for crew in self._crews.values():
            crew.dismiss(exit_code)
        close_all([crew.link for crew in self._crews.values()])

    def _missing_text(self, beginning: str) -> str:
        missing = self._missing
        shown = ", ".join(map(str, missing[:16])) + (" and more" if len(missing) > 16 else "")
        nodes = f"node {shown} has" if len(missing) == 1 else f"nodes {shown} have"
        note = f" A process of another job connected from {self._foreign}." if self._foreign else ""
        return (
            f"{beginning} {nodes} not connected to {self._nodes.rendezvous} ({self._nodes.num_nodes} nodes "
            f"expected).{note} Run the same command on each host, with its own --node-rank."
        )

    def _meet_foreigner(self, host: str, version: str) -> None:
        of_another_job = "its secret differs, or, without a secret, its --nnodes or --rendezvous"
        self._foreign = f"{host}: {other_paceline(version) if version else of_another_job}"

    def _refusal(self, here: Here) -> Refused | None:
        facts = here.facts
        found = differences([self._own_crew.facts, facts])
        refusal = self._misplaced(facts)
        if refusal is None and found and not self._job.options.allow_mismatch:
            self._failure = refusal = Refused(mismatch_text(found))
        elif refusal is not None:
            self._say(f"host {facts.hostname} was refused: {refusal.message}")
        elif found:
            self._say(f"the hosts differ, as --allow-mismatch permits: {'; '.join(found)}")
        return refusal

    def _misplaced(self, facts: HostFacts) -> Refused | None:
        """Why there is no place for the host of `facts`."""
        rank, own = facts.node_rank, self._own_crew.facts
        if rank is None or not 0 < rank < self._nodes.num_nodes:
            return Refused(
                f"--node-rank: received {rank} on host {facts.hostname}; expected 1 to {self._nodes.num_nodes - 1}, as "
                f"--nnodes is {self._nodes.num_nodes} on node 0 (host {own.hostname}). [nodes]"
            )
        if (present := self._facts_of(rank)) is not None:
            return Refused(
                f"--node-rank: received {rank} on host {facts.hostname} (process {facts.pid}), but node {rank} "
                f"is already connected from host {present.hostname} (process {present.pid}). Give "
                "each host its own number. [nodes]",
                EXIT_UNAVAILABLE,
            )
        of_all = {
            "--ps": (facts.num_ps, own.num_ps),
            "--data-workers": (facts.num_data_workers, own.num_data_workers),
        }
        for flag, (its, ours) in of_all.items():
            if its != ours:
                return Refused(
                    f"{flag}: received {its} on host {facts.hostname}, but {ours} on node 0 (host {own.hostname}). "
                    f"Give each host the same {flag}: how many there are on all hosts together. [nodes]"
                )
        before = self._num_workers.get(rank, facts.num_workers)
        if facts.num_workers != before:
            return Refused(
                f"--workers: received {facts.num_workers} on host {facts.hostname}, but node {rank} began this job "
                f"with {before}. Start it again with --workers {before}. [nodes]"
            )
        return None


def _open_rendezvous(nodes: Nodes) -> socket.socket:
    """The listening socket of the rendezvous.

    Raises:
        ConfigurationError: it cannot be opened; the message says who has it, where that can be seen.
    """
    check_own_address(nodes.rendezvous, "--rendezvous", "give every host another port in --rendezvous")
    try:
        return open_port(nodes.rendezvous)
    except OSError as fault:
        raise ConfigurationError(
            f"--rendezvous: received {nodes.rendezvous}, but this host, node 0, cannot listen there: "
            f"{fault.strerror}. Expected an address of node 0 with a free port [port]"
        ) from fault


def _address_of(host: str) -> str:
    """The address behind a name; empty when it has none yet."""
    try:
        return str(socket.gethostbyname(host))
    except OSError:
        return ""
