"""Over which network interfaces this host reaches its peers: MPI takes the first one that is up otherwise, and where
containers run that is often a bridge with the same address on every host. Does I/O; the choice is pure.

Of jobs by hand; where `paceline run` connects the hosts, `launcher/hosts/interfaces.py` lists them and
``--network-interface`` chooses.
"""

import contextlib
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

MAX_PEERS = 8
"""So many are asked about; the others are taken to be where these are."""

_ANY_PORT = 9
_RDMA_DEVICES = Path("/sys/class/infiniband")


def devices_towards(hosts: Iterable[str]) -> str:
    """What UCX_NET_DEVICES should be for talking to `hosts`; empty where MPI's own choice is as good.

    Args:
        hosts: Names or addresses of the peers, the surest first; those that do not resolve are passed over.
    """
    sources = [source for host in list(dict.fromkeys(hosts))[:MAX_PEERS] if (source := _source_towards(host))]
    addresses = {name: [one.address for one in all_] for name, all_ in psutil.net_if_addrs().items()}
    return net_devices(chosen_interfaces(sources, addresses))


def net_devices(interfaces: Sequence[str]) -> str:
    """What UCX_NET_DEVICES should be for talking over `interfaces`; empty for none.

    RDMA devices stay in it: they have names of their own, and MPI prefers them by itself.
    """
    return ",".join((*interfaces, *_rdma_ports())) if interfaces else ""


def chosen_interfaces(sources: Sequence[str], addresses: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The interfaces that have one of the `sources`, in their order; none of loopback.

    >>> addresses = {"lo": ["127.0.0.1"], "docker0": ["172.17.0.1"], "eth0": ["10.0.0.5", "fe80::1%eth0"]}
    >>> chosen_interfaces(["10.0.0.5", "127.0.0.1"], addresses)
    ('eth0',)

    Args:
        sources: The addresses from which this host speaks to its peers.
        addresses: Those of each interface.
    """
    owners = {address.partition("%")[0]: name for name, all_ in addresses.items() for address in all_}
    found = [owners[source] for source in sources if source in owners and not _is_loopback(source)]
    return tuple(dict.fromkeys(found))


def _source_towards(host: str) -> str:
    """The address from which this host would speak to `host`; empty if it cannot. Sends nothing."""
    with contextlib.suppress(OSError, UnicodeError):
        for family, _, _, _, address in socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as datagrams:
                datagrams.connect(address)  # asks the kernel for a route, and for nothing else
                return str(datagrams.getsockname()[0]).partition("%")[0]
    return ""


def _rdma_ports() -> tuple[str, ...]:
    return tuple(sorted(f"{path.parts[-3]}:{path.name}" for path in _RDMA_DEVICES.glob("*/ports/*")))


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")
