"""The proxy that stands in for a bad network."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from proxy import Proxy


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets, to one client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                try:
                    while data := client.recv(1 << 16):
                        client.sendall(data)
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


def test_bytes_arrive_whole_and_late(echo: int) -> None:
    with Proxy("127.0.0.1", echo, delay_seconds=0.1) as proxy, _dial(proxy) as client:
        began = time.monotonic()
        client.sendall(b"a" * 1000)
        received = b""
        while len(received) < 1000:
            received += client.recv(1000)
        assert received == b"a" * 1000
        assert time.monotonic() - began >= 0.2


def test_a_pause_holds_bytes_back(echo: int) -> None:
    with Proxy("127.0.0.1", echo) as proxy, _dial(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.pause()
        client.sendall(b"b")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(60)
        proxy.resume()
        assert client.recv(1) == b"b"


def test_a_cut_is_a_reset(echo: int) -> None:
    with Proxy("127.0.0.1", echo) as proxy, _dial(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_closed_port_behind_it_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Proxy("127.0.0.1", port) as proxy, pytest.raises(ConnectionResetError), _dial(proxy) as client:
        client.recv(1)


def _dial(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
