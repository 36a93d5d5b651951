"""Connects to a process of the job at its address, or says in clear words why that failed. Blocks.

A dial runs in a thread of its own (name lookup cannot be made non-blocking) and touches nothing that is
shared.
"""

import contextlib
import errno
import os
import socket
import time
from dataclasses import dataclass

from paceline.cluster.spec import Address
from paceline.wire.codec import GarbledError
from paceline.wire.frames import FrameSplitter, Seal, frame, receive_frame
from paceline.wire.handshake import (
    MAX_HANDSHAKE_BYTES,
    NONCE_BYTES,
    HandshakeError,
    Identity,
    Initiator,
    Rejected,
    Stranger,
    decode_identity,
)
from paceline.wire.versions import other_paceline

NAME_NOT_FOUND = "name not found"
REFUSED = "connection refused: not started?"
TIMED_OUT = "timed out: no route, or a firewall?"
NO_ROUTE = "no route to the host"
OTHER_PROGRAM = "the port is taken by another program"
OTHER_JOB = "the port is taken by another job: its `cluster` in TF_CONFIG or its secret differs"


class UnreachableError(Exception):
    """The rank was not reached; `reason` is one of this module's phrases, or the system's. Waiting does not heal
    another version of Paceline.
    """

    def __init__(self, reason: str, *, is_other_version: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_other_version = is_other_version


@dataclass(frozen=True, slots=True)
class Reached:
    """A connection to a process of this job."""

    connected: socket.socket
    splitter: FrameSplitter
    """What it has already sent."""
    seal: Seal
    identity: Identity


def dial(address: Address, key: bytes, patience_seconds: float) -> Reached:
    """A connection to the process of this job that listens at `address`.

    Blocks for at most `patience_seconds` per address that the name has, plus as much for the handshake, plus
    the name's lookup.

    Raises:
        UnreachableError: nobody of this job answered.
    """
    connected = connect(address, patience_seconds)
    try:
        splitter, seal, identity = _shake_hands(connected, key, time.monotonic() + patience_seconds)
    except BaseException:
        connected.close()
        raise
    return Reached(connected, splitter, seal, identity)


def connect(address: Address, patience_seconds: float) -> socket.socket:
    """A connection to whoever listens at `address`, with `patience_seconds` as its timeout.

    Raises:
        UnreachableError: nobody does.
    """
    try:
        connected = socket.create_connection((address.host, address.port), timeout=patience_seconds)
    except (socket.gaierror, ValueError) as fault:  # ValueError: not even the form of a name
        raise UnreachableError(NAME_NOT_FOUND) from fault
    except OSError as fault:
        raise UnreachableError(reason_of(fault)) from fault
    if is_connected_to_itself(connected):
        connected.close()
        raise UnreachableError(REFUSED)
    return connected


def is_connected_to_itself(connected: socket.socket) -> bool:
    """Dialling a free port of this host, the kernel may choose that very port as the origin, and TCP connects the
    socket to itself. https://datatracker.ietf.org/doc/html/rfc9293#section-3.5 ("simultaneous open")
    """
    try:
        return bool(connected.getsockname() == connected.getpeername())
    except OSError:  # the peer is gone already
        return False


def reason_of(fault: OSError) -> str:
    """Why there is no connection, in words of this module where it has some."""
    if isinstance(fault, TimeoutError) or fault.errno == errno.ETIMEDOUT:
        return TIMED_OUT
    if isinstance(fault, ConnectionRefusedError):
        return REFUSED
    if fault.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return NO_ROUTE
    return fault.strerror or str(fault)


def _shake_hands(connected: socket.socket, key: bytes, deadline: float) -> tuple[FrameSplitter, Seal, Identity]:
    splitter = FrameSplitter()
    initiator = Initiator(key, os.urandom(NONCE_BYTES))
    try:
        connected.sendall(frame(initiator.hello()))
        challenge = receive_frame(connected, splitter, deadline, MAX_HANDSHAKE_BYTES)
        connected.sendall(frame(initiator.answer(challenge)))
        seal = initiator.seal()
        splitter.expect(seal)
        identity = decode_identity(receive_frame(connected, splitter, deadline))
    except HandshakeError as fault:
        if fault.stranger is Stranger.OTHER_VERSION:
            raise UnreachableError(other_paceline(fault.version), is_other_version=True) from fault
        if fault.stranger is Stranger.OTHER_PROGRAM:
            raise UnreachableError(OTHER_PROGRAM) from fault
        with contextlib.suppress(OSError):
            connected.sendall(frame(Rejected()))
        raise UnreachableError(OTHER_JOB) from fault
    except (OSError, GarbledError) as fault:  # silence, a closed connection, or another protocol's bytes
        raise UnreachableError(OTHER_PROGRAM) from fault
    return splitter, seal, identity


def dial_seconds(start_timeout_seconds: float) -> float:
    """How long one attempt to reach a rank may take."""
    return max(0.2, min(4.0, start_timeout_seconds / 4))
