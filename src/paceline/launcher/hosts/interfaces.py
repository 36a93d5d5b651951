"""The network interfaces of a host: those that others may reach (``--network-interface``), and one that they do reach.

Each host tests the next one, in a ring, at every address that it has:

    a ──looks for──► b ──looks for──► c ──looks for──► a

The first address that answers, in the order of `HostFacts.interfaces`, carries MPI. A ring proves one peer for each
host, not all; Horovod's launcher asks no more (its ``common_intfs``). Of jobs by hand, `cluster/peer_interface.py`
finds the interface for MPI.
"""

import asyncio
import socket
from collections.abc import Mapping, Sequence

import psutil

from paceline.cluster.spec import LOCAL_HOST, Address
from paceline.errors import ConfigurationError
from paceline.launcher.hosts.gathering import NotGatheredError
from paceline.launcher.workers.crew import Crew
from paceline.rendezvous.agent_messages import HostFacts, Interface

_LOOPBACK = "127."


def own_interfaces(wanted: str, reached_at: str) -> tuple[Interface, ...]:
    """This host's interfaces with an IPv4 address, the likeliest first.

    Args:
        wanted: Comma-separated names that the user gave; the first that this host has is the only one. Empty: all.
        reached_at: An address at which somebody has reached this host; goes first. Empty: unknown.

    Raises:
        ConfigurationError: this host has none of the `wanted`.
    """
    present = [
        Interface(name, address.address)
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == socket.AF_INET
    ]
    status = psutil.net_if_stats()
    up = [one for one in present if one.name in status and status[one.name].isup]
    return chosen_interfaces(up, wanted, reached_at, socket.gethostname())


def chosen_interfaces(up: Sequence[Interface], wanted: str, reached_at: str, hostname: str) -> tuple[Interface, ...]:
    """As `own_interfaces`, from the interfaces that are `up`; pure.

    >>> up = [Interface("lo", "127.0.0.1"), Interface("docker0", "172.17.0.1"), Interface("eth0", "10.0.0.5")]
    >>> [one.name for one in chosen_interfaces(up, "", "10.0.0.5", "a")]
    ['eth0', 'docker0', 'lo']
    """
    if not wanted:
        return tuple(sorted(up, key=lambda one: (one.address.startswith(_LOOPBACK), one.address != reached_at)))
    for name in (part.strip() for part in wanted.split(",")):
        found = [one for one in up if one.name == name or one.address == name]
        if found:
            return tuple(found[:1])
    raise ConfigurationError(
        f"--network-interface: received {wanted!r}; expected one that host {hostname} has and that is up: "
        f"{', '.join(f'{one.name} ({one.address})' for one in up) or 'it has none'}"
        " [network-interface]"
    )


def address_of_ssh(variables: Mapping[str, str]) -> str:
    """The address of this host at which its ssh server was reached; empty when it was not.

    >>> address_of_ssh({"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.5 22"})
    '10.0.0.5'
    """
    words = variables.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else ""


_ONLY_HOST = Interface("", LOCAL_HOST)


async def reached_interfaces(crews: Sequence[Crew], known: dict[Crew, Interface], key: bytes) -> tuple[Interface, ...]:
    """The interface of each of `crews`, in their order.

    Args:
        crews: The hosts of a generation.
        known: What earlier generations found, which is not looked for again; what is found now is added.
        key: The job's key.

    Raises:
        NotGatheredError: some host is not reached by its peer.
    """
    if len({crew.facts.machine_id for crew in crews}) == 1:
        return (_ONLY_HOST,) * len(crews)
    looks = [_look(crews[index - 1], crew, key) for index, crew in enumerate(crews) if crew not in known]
    known.update(await asyncio.gather(*looks))
    return tuple(known[crew] for crew in crews)


async def _look(looker: Crew, target: Crew, key: bytes) -> tuple[Crew, Interface]:
    facts = target.facts
    addresses = tuple(Address(one.address, facts.probe_port) for one in facts.interfaces)
    try:
        reasons = await looker.look(facts, addresses, key)
    except ConnectionError as fault:
        raise NotGatheredError([f"paceline: host {looker.facts.hostname} {fault}. [host-lost]"]) from fault
    for interface, reason in zip(facts.interfaces, reasons, strict=False):
        if not reason:
            return target, interface
    raise NotGatheredError([unreached_text(looker.facts.hostname, facts, reasons)])


def unreached_text(looker: str, facts: HostFacts, reasons: Sequence[str]) -> str:
    """Why `looker` reached the host of `facts` nowhere."""
    tried = "; ".join(
        f"{one.name} {one.address} ({reason})" for one, reason in zip(facts.interfaces, reasons, strict=False)
    )
    return (
        f"paceline: host {looker} cannot reach host {facts.hostname} at any of its addresses: "
        f"{tried or 'it has none'}. Does a firewall block them? Port {facts.probe_port} was tried; MPI uses any "
        "port. If the hosts share another network, choose its interface with --network-interface. "
        "[host-unreachable]"
    )
