"""A port on which agents meet: opened once, and answered only to processes that know the job's key.

Strangers cost little and change nothing: a few hundred bytes and a few seconds each, at most `MAX_STRANGERS`
at a time, and when more come the oldest goes. A real peer proves itself within milliseconds, so it is not the
one that is evicted.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from paceline.cluster.own_address import within
from paceline.cluster.spec import Address
from paceline.errors import ConfigurationError
from paceline.rendezvous.connection import Connection
from paceline.wire.handshake import (
    MAX_HANDSHAKE_BYTES,
    NONCE_BYTES,
    HandshakeError,
    Identity,
    Rejected,
    Responder,
    Stranger,
)

MAX_STRANGERS = 128
STRANGER_PATIENCE_SECONDS = 5.0
_BACKLOG = 512
_LOOKUP_SECONDS = 1.0
_TICK_SECONDS = 1.0

OnForeign = Callable[[str, str], None]
OnPeer = Callable[[Connection], None]


def open_port(address: Address) -> socket.socket:
    """A listening socket for `address`: on the interface whose address it names, for peers use no other; on all
    interfaces where it names none of this host (behind NAT, or a name that is not known yet).

    A name that resolves to 127.0.1.1, to which many systems map their own, counts as none: no other host can connect
    there.

    Raises:
        OSError: as `socket.bind` does, `EADDRINUSE` when the port is taken.
        ConfigurationError: ports below 1024 are not this user's to open.
    """
    try:
        return _listen(address)
    except PermissionError as fault:
        raise ConfigurationError(
            f"this user may not listen on port {address.port} of {address}, this rank's address in "
            "TF_CONFIG. Expected a port from 1024 on. [port]"
        ) from fault


class Listener:
    """Answers on a port with the identity of the process that has it.

    Args:
        loop: The loop.
        port: The listening socket; owned from now on.
        key: The job's key.
        identity: What a peer that knows the key is told.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, port: socket.socket, key: bytes, identity: Identity) -> None:
        self._loop = loop
        self._port = port
        self._key = key
        self._identity = identity
        self._on_peer: OnPeer | None = None
        self._on_foreign: OnForeign | None = None
        self._deadlines: dict[Connection, float] = {}
        """By when a connection must be of use, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self, on_peer: OnPeer | None = None, on_foreign: OnForeign | None = None) -> None:
        """Begins to answer.

        Args:
            on_peer: Called with a peer's connection once it was told the identity: what it says from then on is the
                callee's to read. Without it a peer learns the identity, and no more.
            on_foreign: Called with the host of a peer that is another version of Paceline, and with that version;
                or of one that has another key, and with "".
        """
        self._on_peer, self._on_foreign = on_peer, on_foreign
        self._port.setblocking(False)
        self._loop.add_reader(self._port, self._accept)
        self._tick()

    def close(self) -> None:
        """Gives the port back; connections that were handed over live on. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._port.fileno() >= 0:
            self._loop.remove_reader(self._port)
            self._port.close()
        for connection in list(self._deadlines):
            self._drop(connection)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)
        now = self._loop.time()
        for connection in [one for one, deadline in self._deadlines.items() if deadline < now]:
            self._drop(connection)

    def _accept(self) -> None:
        try:
            connected, _ = self._port.accept()
            connection = Connection(self._loop, connected)
        except OSError:
            return  # the stranger is gone already, or this process is out of descriptors for the moment
        while len(self._deadlines) >= MAX_STRANGERS:
            self._drop(next(iter(self._deadlines)))
        self._deadlines[connection] = self._loop.time() + STRANGER_PATIENCE_SECONDS
        self._await(connection, lambda hello: self._hello(connection, hello))

    def _await(self, connection: Connection, on_body: Callable[[bytes], None]) -> None:
        connection.attach(bytes, on_body, lambda _: self._drop(connection), MAX_HANDSHAKE_BYTES)

    def _hello(self, connection: Connection, hello: bytes) -> None:
        try:
            responder = Responder(self._key, os.urandom(NONCE_BYTES), hello)
        except HandshakeError as fault:
            if fault.stranger is Stranger.OTHER_VERSION:
                connection.send(Rejected())
                self._tell_of_foreigner(connection, fault.version)
            self._drop(connection)
            return
        connection.send(responder.challenge())
        self._await(connection, lambda answer: self._check(connection, responder, answer))

    def _check(self, connection: Connection, responder: Responder, answer: bytes) -> None:
        try:
            responder.check(answer)
        except HandshakeError as fault:
            if fault.stranger is Stranger.OTHER_JOB:
                self._tell_of_foreigner(connection, "")
            self._drop(connection)
            return
        connection.use_seal(responder.seal())
        connection.send(self._identity)
        if self._on_peer is None:
            self._await(connection, lambda _: self._drop(connection))
            return
        del self._deadlines[connection]
        self._on_peer(connection)

    def _tell_of_foreigner(self, connection: Connection, version: str) -> None:
        if self._on_foreign is not None:
            self._on_foreign(connection.peer_host, version)

    def _drop(self, connection: Connection) -> None:
        self._deadlines.pop(connection, None)
        connection.close()


def _own_address(host: str) -> str | None:
    """The address of an interface of this host that peers reach under the name `host`; None: not known."""
    found = within(_LOOKUP_SECONDS, lambda: _ipv4_addresses(host)) or ()
    return next((address for address in found if not address.startswith("127.")), None)


def _ipv4_addresses(host: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: not even the form of a name
        return ()
    return tuple(str(endpoint[0]) for *_, endpoint in found)


def _listen(address: Address) -> socket.socket:
    if address.host == "localhost" or address.host.startswith("127."):
        host = "127.0.0.1" if address.host == "localhost" else address.host
        return socket.create_server((host, address.port), backlog=_BACKLOG)
    if address.host == "::1":
        return socket.create_server((address.host, address.port), family=socket.AF_INET6, backlog=_BACKLOG)
    own = _own_address(address.host)
    if own is not None:
        try:
            return socket.create_server((own, address.port), backlog=_BACKLOG)
        except OSError as fault:
            if fault.errno != errno.EADDRNOTAVAIL:  # that one: an address of NAT's, not of this host
                raise
    try:
        return socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    except (OSError, ValueError) as fault:
        if isinstance(fault, OSError) and fault.errno in (errno.EADDRINUSE, errno.EACCES):
            raise
        return socket.create_server(("", address.port), backlog=_BACKLOG)  # a system without IPv6
