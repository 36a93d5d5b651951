"""Ports until the workers begin: the one a worker by hand needs, and connection tests between hosts, from both ends."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Sequence

from paceline.cluster.spec import Address
from paceline.errors import ConfigurationError
from paceline.rendezvous.channel import Attach
from paceline.rendezvous.dialing import OTHER_JOB, UnreachableError, dial
from paceline.rendezvous.listener import Listener, open_port
from paceline.wire.handshake import Identity

_BACKLOG = 512
_PATIENCE_SECONDS = 2.0


class Probe:
    """A port on all interfaces that answers nobody but the agents of this job.

    Args:
        loop: The running event loop.
        key: The job's key.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, key: bytes) -> None:
        port = socket.create_server(("", 0), backlog=_BACKLOG)
        self.port: int = port.getsockname()[1]
        identity = Identity(0, socket.gethostname(), os.getpid())
        self._listener = Listener(loop, port, key, identity)

    def start(self) -> None:
        """Begins to answer."""
        self._listener.start()

    def close(self) -> None:
        """Gives the port back. Idempotent."""
        self._listener.close()


async def look_for(hostname: str, pid: int, addresses: Sequence[Address], key: bytes) -> tuple[str, ...]:
    """For each of `addresses` why the agent `pid` of host `hostname` was not reached there; empty: it was."""
    looks = (asyncio.to_thread(_reason, hostname, pid, address, key) for address in addresses)
    return tuple(await asyncio.gather(*looks))


def _reason(hostname: str, pid: int, address: Address, key: bytes) -> str:
    try:
        reached = dial(address, key, _PATIENCE_SECONDS)
    except UnreachableError as fault:
        return fault.reason
    with reached.connected:
        found = (reached.identity.hostname, reached.identity.pid)
    # Many hosts have interfaces of their own with the same address (docker0): the wrong one answers there.
    return "" if found == (hostname, pid) else f"host {reached.identity.hostname} answers there"


_PREVIOUS_RUN_SECONDS = 1.0
"""A port may be held this long by the last run's agent, which is on its way out."""


def claim_own_port(attach: Attach) -> socket.socket:
    """The listening socket of the rank of `attach`.

    Raises:
        ConfigurationError: the port is taken; the message says by what, as far as it answers.
    """
    address = attach.addresses[attach.rank]
    patience_ends = time.monotonic() + _PREVIOUS_RUN_SECONDS
    while True:
        try:
            return open_port(address)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                raise ConfigurationError(
                    f"cannot listen on {address}, the address of rank {attach.rank} in TF_CONFIG: "
                    f"{fault.strerror}. Expected an address of this host. [port]"
                ) from fault
            if time.monotonic() >= patience_ends:
                raise ConfigurationError(f"{_taken(attach)} [port]") from fault
        time.sleep(0.05)


def _taken(attach: Attach) -> str:
    address = attach.addresses[attach.rank]
    where = f"{address}, the address of rank {attach.rank} in TF_CONFIG"
    try:
        reached = dial(address, attach.key, 0.5)
    except UnreachableError as fault:
        holder_words = "another Paceline job" if fault.reason == OTHER_JOB else "another program"
        return (
            f"the port of {where}, is taken by {holder_words}. "
            "End it, or give this rank another port in the TF_CONFIG of every rank."
        )
    reached.connected.close()
    holder = reached.identity
    return (
        f"{where}, is used by rank {holder.rank} of this job (its agent is process {holder.pid} on host "
        f"{holder.hostname}). Every process needs its own `task` in TF_CONFIG, and must be started only once."
    )
