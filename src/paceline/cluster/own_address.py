"""Ports of this host: whether this process can serve its own address, and which ports are free. Does I/O.

Refused is what TensorFlow would fail on too: a port that cannot be opened. A host that is not this machine is
only warned about. It may be right: behind NAT or a Kubernetes service the name belongs to no interface of the
container, and a pod's own name may not resolve before the pod is ready.

Nothing here takes a second: a name server or a process table that does not answer in time is not waited for.
"""

import errno
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

from paceline.cluster.environment import TF_CONFIG
from paceline.cluster.spec import Address
from paceline.errors import ConfigurationError

RESOLVE_LIMIT_SECONDS = 0.3
HOLDER_LIMIT_SECONDS = 0.3

_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_240
_TRIES_PER_PORT = 20
_OTHER_PORT = "give this task a free port in the TF_CONFIG of every process"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    family: int
    host: str
    scope: tuple[int, ...] = ()
    """Flow label and scope of an IPv6 address."""

    def bind_error(self, port: int) -> int:
        """The `errno` of listening on this endpoint, 0 if that would work."""
        try:
            with socket.socket(self.family, socket.SOCK_STREAM) as probe:
                # Connections that an earlier run left in TIME_WAIT do not stop a server, so they must not
                # stop us; a listener still does. No listen(): no peer may take the probe for the real server.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self.host, port, *self.scope))
        except OSError as fault:
            return fault.errno or errno.EINVAL
        return 0


_EVERY_INTERFACE = _Endpoint(socket.AF_INET, "")


def check_own_address(address: Address, given_by: str = TF_CONFIG, other_port: str = _OTHER_PORT) -> None:
    """Refuses an own `address` whose port cannot be opened; warns if its host seems not to be this machine.

    The port is tried on the addresses of this machine that the host stands for; if none, on all interfaces. The host is
    doubted only if a person wrote it, in TF_CONFIG.

    Args:
        address: Where this process will listen.
        given_by: Who says so: TF_CONFIG, or a scheduler.
        other_port: How to change the port, as an instruction.

    Raises:
        ConfigurationError: the port is taken (tells by whom, where that can be seen), or needs privileges.
    """
    found = within(RESOLVE_LIMIT_SECONDS, lambda: _resolve(address.host))
    own = [] if found is None or isinstance(found, OSError) else _on_this_machine(found)
    for endpoint in own or [_EVERY_INTERFACE]:
        error = endpoint.bind_error(address.port)
        if error == errno.EADDRINUSE:
            raise ConfigurationError(f"{_taken(address, given_by, other_port)} [port]")
        if error == errno.EACCES:
            raise ConfigurationError(
                f"{given_by} gives this process the address {address}, but opening port {address.port} needs "
                f"privileges; {other_port}, from 1024 on. [port]"
            )
    if not own and given_by == TF_CONFIG:
        _logger.warning(
            "TF_CONFIG gives this process the address %s, but %s. This is right behind NAT or a Kubernetes "
            "service; otherwise correct the host, or task.index if the address is another machine's.",
            address,
            _doubt(address.host, found),
        )


def _resolve(host: str) -> Sequence[_Endpoint] | OSError:
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as fault:
        return fault
    except UnicodeError:  # a label of more than 63 letters
        return OSError("not a valid host name")
    return [_Endpoint(family, str(where[0]), tuple(map(int, where[2:]))) for family, *_, where in answers]


def _on_this_machine(endpoints: Sequence[_Endpoint]) -> list[_Endpoint]:
    return [endpoint for endpoint in endpoints if endpoint.bind_error(0) == 0]


def _doubt(host: str, found: Sequence[_Endpoint] | OSError | None) -> str:
    if found is None:
        return f'the host "{host}" did not resolve in {RESOLVE_LIMIT_SECONDS} s'
    if isinstance(found, OSError):
        return f'the host "{host}" does not resolve ({found.strerror or found})'
    return f'the host "{host}" is no address of this machine ({", ".join(endpoint.host for endpoint in found)})'


def _taken(address: Address, given_by: str = TF_CONFIG, other_port: str = _OTHER_PORT) -> str:
    holder = within(HOLDER_LIMIT_SECONDS, lambda: _holder(address.port)) or "another process"
    same = "task.index" if given_by == TF_CONFIG else "number"
    return (
        f"{given_by} gives this process the address {address}, but port {address.port} is already taken by "
        f"{holder}; if that is another worker of this job, two processes have the same {same}, otherwise "
        f"end it, or {other_port}."
    )


def _holder(port: int) -> str | None:
    """The process that has `port` open, in words; None where the system does not tell (another user's)."""
    import psutil  # slow, and for this message alone

    try:
        holders = [
            (connection.status != psutil.CONN_LISTEN, connection.pid)
            for connection in psutil.net_connections("tcp")
            if connection.laddr and connection.laddr.port == port and connection.pid
        ]
        if not holders:
            return None
        _, pid = min(holders)
        if pid == os.getpid():
            return f"this process itself ({pid})"
        return f"process {pid} ({psutil.Process(pid).name()})"
    except (psutil.Error, OSError):
        return None


_Answer = TypeVar("_Answer")


def within(limit_seconds: float, ask: Callable[[], _Answer]) -> _Answer | None:
    """What `ask` returns, or None if that takes longer; `ask` must not raise, and goes on in a thread of its own."""
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(ask()), name="paceline-time-limit", daemon=True).start()
    try:
        return answers.get(timeout=limit_seconds)
    except queue.Empty:
        return None


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different TCP ports, free on every IPv4 interface at the time of the call.

    Nothing reserves them after the return, and a worker listens only when it has imported TensorFlow. So they are none
    of those that the kernel gives to outgoing connections, where that leaves enough: any program of this host may open
    a connection meanwhile.

    Raises:
        OSError: the kernel has no more ports or file descriptors.
    """
    lasting = range(_LOWEST, max(_LOWEST, _first_outgoing()))
    candidates = SystemRandom().sample(lasting, min(len(lasting), count * _TRIES_PER_PORT))
    with ExitStack() as held:  # until the last one is found, or one port could be found twice
        ports: list[int] = []
        for wanted in (*candidates, *[0] * count):
            if len(ports) == count:
                break
            holder = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                holder.bind(("", wanted))  # every interface: TensorFlow's own servers listen on all of them
            except OSError:
                if wanted == 0:
                    raise
                continue  # somebody else's
            ports.append(int(holder.getsockname()[1]))
        return tuple(ports)


def _first_outgoing() -> int:
    """The lowest port that the kernel gives to a connection; the lowest that is asked for where it does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(_OUTGOING.read_text().split()[0])
    return _LOWEST
