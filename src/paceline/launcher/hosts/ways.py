"""Which way leads to the hosts of a job: ssh, ``--nnodes``, or none, for a job on this host alone; this host's crew."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from paceline.cluster.spec import LOCAL_HOST
from paceline.launcher.event_loop import may_read_stdin
from paceline.launcher.hosts.gathering import Gathering, Member
from paceline.launcher.hosts.host_facts import facts_of_this_host
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.guard_line import GuardLine, guarded
from paceline.launcher.workers.local_crew import LocalCrew
from paceline.launcher.workers.teardown import JobProcesses
from paceline.rendezvous.agent_messages import HostFacts, Interface


def way_to_hosts(
    job: JobDescription, job_id: str, guard: GuardLine
) -> Callable[[asyncio.AbstractEventLoop, Callable[[str], None]], Gathering]:
    """Makes the hosts of `job` from the event loop and from what prints a line for the user.

    Args:
        job: The job, checked.
        job_id: Its name.
        guard: Ends its processes if this one is gone.
    """

    def make(loop: asyncio.AbstractEventLoop, say: Callable[[str], None]) -> Gathering:
        def local_crew(facts: HostFacts, *, keyboard_rank: int | None = None) -> LocalCrew:
            processes = JobProcesses(job_id, guard.agent_id)
            return LocalCrew(loop, job, facts, processes=processes, guard=guard, keyboard_rank=keyboard_rank)

        if job.hosts:
            from paceline.launcher.hosts.ssh_hosts import SshHosts  # not for a job on this host: it starts at once

            return SshHosts(loop, job, guard, say)
        if job.nodes is not None:
            from paceline.launcher.hosts.node_hosts import NodeHosts

            return NodeHosts(loop, job, job.nodes, local_crew, say)
        num_ranks = sum(role.in_world for _, role in job.cast(job.num_workers))
        keyboard_rank = 0 if num_ranks == 1 else job.options.debug_rank
        crew = local_crew(facts_of_this_host(job), keyboard_rank=keyboard_rank if may_read_stdin() else None)
        return SingleHost(crew, job.num_workers)

    return make


def guarded_crew(
    loop: asyncio.AbstractEventLoop, job: JobDescription, facts: HostFacts
) -> Callable[[str, ExitStack], LocalCrew]:
    """Makes the crew of an agent with a guard of its own, from the job's name and what `HostAgent` gives."""

    def make(job_id: str, lifetimes: ExitStack) -> LocalCrew:
        guard = lifetimes.enter_context(guarded(job_id))
        processes = JobProcesses(job_id, guard.agent_id)
        return LocalCrew(loop, job, facts, processes=processes, guard=guard)

    return make


class SingleHost(Gathering):
    """This host, whenever it is asked for.

    Args:
        crew: Its workers.
        num_workers: How many.
    """

    def __init__(self, crew: LocalCrew, num_workers: int) -> None:
        self._crew = crew
        self._num_workers = num_workers

    async def gather(self, generation: int) -> tuple[Member, ...]:
        """See `Gathering.gather`."""
        del generation
        return (Member(self._crew, self._num_workers, Interface("", LOCAL_HOST)),)

    def tell(self, lines: Sequence[str]) -> None:
        """See `Gathering.tell`: the only user reads the head's own words."""

    def show_life(self) -> None:
        """See `Gathering.show_life`: there is nobody else."""

    async def close(self, exit_code: int) -> None:
        """See `Gathering.close`."""
        del exit_code
        self._crew.close()
