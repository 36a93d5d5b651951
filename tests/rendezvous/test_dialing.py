"""Who answers at an address, or why nobody does."""

import select
import socket
import struct
from typing import Any

import pytest

from paceline.cluster.spec import Address
from paceline.rendezvous.dialing import OTHER_PROGRAM, REFUSED, UnreachableError, connect, dial

RESET_AT_CLOSE = struct.pack("ii", 1, 0)


def test_who_closes_at_once_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was reset before it was looked at had no peer any more, and the dial no answer."""
    connect = socket.create_connection

    def reset(*arguments: Any, **options: Any) -> socket.socket:
        connected = connect(*arguments, **options)
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        accepted.close()
        assert select.select([connected], [], [], 10)[0]
        return connected

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(socket, "create_connection", reset)
        with pytest.raises(UnreachableError) as caught:
            dial(Address("127.0.0.1", server.getsockname()[1]), b"key", 10.0)
    assert caught.value.reason == OTHER_PROGRAM


def test_a_connection_to_itself_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that looked for its chief on one host could get the chief's free port as the origin, and hold it."""

    def connected_to_itself(*_: Any, **__: Any) -> socket.socket:
        both = socket.socket()
        both.bind(("127.0.0.1", 0))
        both.connect(both.getsockname())
        return both

    monkeypatch.setattr(socket, "create_connection", connected_to_itself)
    with pytest.raises(UnreachableError) as caught:
        connect(Address("127.0.0.1", 2222), 10.0)
    assert caught.value.reason == REFUSED
