"""Which process runs on which host: from the connected hosts to the orders of a generation, and its opening lines.

Ranks go host by host in the order given, then by local rank; the chief is rank 0. So do the workers beside parameter
servers, in the place of ranks. All others go round the hosts by their index: the chief and ``ps 0`` run on the first.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.cluster import environment
from paceline.cluster.control_groups import core_quota
from paceline.cluster.launched import WorkerIdentity, slot_holders
from paceline.cluster.spec import DATA, Address, Role, Task, numbers_with_slots
from paceline.launcher.generations import report
from paceline.launcher.generations.names import names_of
from paceline.launcher.hosts.gathering import Member
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.crew import Crew
from paceline.launcher.workers.host_resources import share_cores, usable_cores
from paceline.rendezvous.agent_messages import Begin, HostFacts, Interface


@dataclass(frozen=True, slots=True)
class Station:
    """A host's part in a generation."""

    facts: HostFacts
    num_workers: int
    """How many of its slots are used."""
    interface: Interface
    """Where the other ranks reach it; without a name, MPI chooses."""


def generation_orders(
    stations: Sequence[Station],
    *,
    job_id: str,
    generation: int,
    seed: int,
    variables: Mapping[str, str],
    cast: Sequence[tuple[Task, Role]],
) -> tuple[Begin, ...]:
    """The order for each of `stations`, in their order.

    Stations on one machine (several agents there, as under a scheduler) count their local ranks through.

    Args:
        stations: The hosts, the chief's first.
        job_id: The job's name.
        generation: Its number.
        seed: Of all ranks.
        variables: Those that every process is told.
        cast: Task and role of each process, ranks first; see `JobDescription.cast`.
    """
    world_size = sum(role.in_world for _, role in cast)
    holders = numbers_with_slots((task, role.in_world) for task, role in cast)
    slots = [index for index, station in enumerate(stations) for _ in range(station.num_workers)]
    host_of = {number: task.index % len(stations) for number, (task, _) in enumerate(cast)}
    host_of |= dict(zip(holders, slots, strict=True))
    machine_of = {number: stations[host].facts.machine_id for number, host in host_of.items()}
    per_machine = Counter(machine_of[number] for number in holders)
    placed, used = Counter[str](), Counter[int]()
    cluster: dict[str, tuple[Address, ...]] = {}
    identities: list[list[WorkerIdentity]] = [[] for _ in stations]
    for number, (task, _) in enumerate(cast):
        host, machine, has_slot = host_of[number], machine_of[number], number in holders
        cluster[task.type] = (*cluster.get(task.type, ()), _address(stations[host], used[host]))
        used[host] += 1
        identities[host].append(
            WorkerIdentity(
                task=task,
                rank=number,
                world_size=world_size,
                local_rank=placed[machine] if has_slot else 0,
                local_world_size=per_machine[machine] if has_slot else 1,
                generation=generation,
                job_id=job_id,
                seed=seed,
            )
        )
        placed[machine] += has_slot
    told = dict(variables)
    if DATA in cluster:  # behind those of the processes of the chief's host
        told[environment.DATA_SERVICE] = str(_address(stations[0], used[0]))
    return tuple(
        Begin(tuple(own), cluster, station.interface.name, told)
        for station, own in zip(stations, identities, strict=True)
    )


def _address(station: Station, number: int) -> Address:
    return Address(station.interface.address, station.facts.ports[number])


@dataclass(frozen=True, slots=True)
class Lineup:
    """The hosts of a generation, in rank order."""

    members: Sequence[Member]
    orders: Sequence[Begin]

    @property
    def crews(self) -> list[tuple[Crew, Begin]]:
        """Each host's workers, with their order."""
        return [(member.crew, order) for member, order in zip(self.members, self.orders, strict=True)]

    def processes(self) -> Iterator[tuple[WorkerIdentity, Crew]]:
        """Each process, with the crew it is in."""
        return ((identity, crew) for crew, order in self.crews for identity in order.identities)

    @property
    def hosts(self) -> dict[int, str]:
        """By rank, the name of its host."""
        return {identity.rank: crew.facts.hostname for identity, crew in self.processes()}

    @property
    def prefixes(self) -> dict[int, str]:
        """By rank, what stands before its lines."""
        alone = len(self.members) == 1
        return {
            identity.rank: identity.label if alone else f"{crew.facts.hostname} {identity.label}"
            for identity, crew in self.processes()
        }

    def opening_lines(self, job: JobDescription, job_id: str, seed: int) -> list[str]:
        """What the user reads first."""
        cores = share_cores(usable_cores(), job.num_workers, core_quota()) if job.options.bind == "cores" else None
        gpus = self.members[0].crew.facts.gpus
        if len(self.members) == 1 and not job.hosts:
            lines = [report.start_text(job.num_workers, cores, len(gpus), job_id)]
        else:
            hosts = [(member.crew.facts.hostname, member.num_workers) for member in self.members]
            lines = [report.hosts_text(hosts, job_id, "worker" if job.options.ps else "rank")]
        for member, order in zip(self.members, self.orders, strict=True):
            if others := [one.label for one in order.identities if one not in slot_holders(order.identities)]:
                lines.append(f"beside them on host {member.crew.facts.hostname}: {', '.join(others)}")
        if environment.TF_CONFIG in job.environment:
            lines.append("the TF_CONFIG of this shell is ignored: each worker gets one of its own")
        if job.options.verbose:
            lines.append(f"seed {seed}; each worker runs: {shlex.join(job.command)}")
            for member, order in zip(self.members, self.orders, strict=True):
                place = f"host {member.crew.facts.hostname}, interface {member.interface.name or 'any'}"
                holders = slot_holders(order.identities)
                for identity in order.identities:
                    if len(self.members) == 1:
                        number = identity.local_rank if identity in holders else None
                        own = "any" if cores is None or number is None else ",".join(map(str, cores[number].cores))
                        place = f"cores {own}"
                        place += f", GPU {gpus[number % len(gpus)]}" if gpus and number is not None else ""
                    address = order.cluster[identity.task.type][identity.task.index]
                    who = names_of(order.identities).of(identity.rank)
                    lines.append(f"{who}: {place}, address {address}")
            if job.options.log_dir is not None:
                lines.append(f"log files: {job.options.log_dir}/latest/job_0.log and so on")
        return lines
