"""Which TensorFlow servers answer at their addresses, and why the others do not; how they are waited for."""

import contextlib
import selectors
import socket
import sys
import time
from collections.abc import Mapping
from typing import TypeVar

from paceline.cluster.spec import Address
from paceline.rendezvous.agent_messages import Missing, Waiting
from paceline.rendezvous.dialing import NAME_NOT_FOUND, TIMED_OUT, is_connected_to_itself, reason_of
from paceline.rendezvous.waiting import FIRST_LINE_SECONDS, LINE_INTERVAL_SECONDS, waiting_line

SILENT = "no answer: stopped, or another program?"

_ANSWER_SECONDS = 2.0
"""A process that runs answers at once; one that is stopped, or whose host is lost, never does."""

_POLL_SECONDS = 0.2

Name = TypeVar("Name")


def await_answers(who: str, addresses: Mapping[str, Address], seconds: float) -> Waiting:
    """Returns when all of `addresses` have answered, or when `seconds` are over: who is missing then.

    Prints now and then who is missing, as agents do.

    Args:
        who: Waits, such as ``the chief``.
        addresses: By name, such as ``ps 0``.
        seconds: For how long.
    """
    started = time.monotonic()
    next_line = started + FIRST_LINE_SECONDS
    missing = dict.fromkeys(addresses, "")
    while True:
        missing = faults_of({name: addresses[name] for name in missing})
        now = time.monotonic()
        named = tuple(Missing(name, str(addresses[name]), fault) for name, fault in missing.items())
        waiting = Waiting(named, len(named), "", max(0.0, started + seconds - now))
        if not missing or not waiting.seconds_left:
            return waiting
        if now >= next_line:
            next_line = now + LINE_INTERVAL_SECONDS
            print(waiting_line(who, len(addresses), waiting), file=sys.stderr, flush=True)
        time.sleep(_POLL_SECONDS)


def faults_of(addresses: Mapping[Name, Address]) -> dict[Name, str]:
    """Why no server answers at some of `addresses`, which are asked all at once; those that answer are left out.

    The answer is gRPC's greeting. A connection alone proves nothing: the kernel accepts it for a process that is
    stopped, too.
    """
    faults: dict[Name, str] = {}
    answered: set[Name] = set()
    deadline = time.monotonic() + _ANSWER_SECONDS
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        for name, address in addresses.items():
            faults[name] = NAME_NOT_FOUND
            for connection in _begun_connections(address):
                faults[name] = TIMED_OUT
                selector.register(opened.enter_context(connection), selectors.EVENT_READ, (name, connection))
        while selector.get_map() and (seconds := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(seconds):
                selector.unregister(key.fileobj)
                name, connection = key.data
                try:
                    if connection.recv(1):
                        answered.add(name)
                    else:
                        faults[name] = SILENT
                except OSError as fault:  # refused, or broken
                    faults[name] = reason_of(fault)
        for key in selector.get_map().values():
            name, connection = key.data
            with contextlib.suppress(OSError):  # not connected
                connection.getpeername()
                faults[name] = SILENT
    return {name: fault for name, fault in faults.items() if name not in answered}


def _begun_connections(address: Address) -> list[socket.socket]:
    """One for each address that a name has: a server may listen at one of them only."""
    begun = []
    with contextlib.suppress(OSError, ValueError):  # ValueError: not even the form of a name
        for family, kind, protocol, _, place in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            connection.setblocking(False)
            connection.connect_ex(place)
            if is_connected_to_itself(connection):  # at once: in the server's way, if it comes now
                connection.close()
                continue
            begun.append(connection)
    return begun
