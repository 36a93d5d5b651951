"""Whether a process can serve the address that TF_CONFIG gives it, and free ports for a cluster on this host."""

import errno
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from paceline.cluster import own_address
from paceline.cluster.own_address import check_own_address, free_ports
from paceline.cluster.spec import Address
from paceline.errors import ConfigurationError
from ports import HoldPorts

NOT_THIS_MACHINE = "203.0.113.7"
"""An address that is reserved for documentation; nothing is ever sent to it here."""


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough time to name the holder on a busy machine."""
    monkeypatch.setattr(own_address, "HOLDER_LIMIT_SECONDS", 20)


@pytest.fixture
def unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_free_port_is_silently_accepted(hold_ports: HoldPorts, host: str, caplog: pytest.LogCaptureFixture) -> None:
    (port,) = hold_ports(1)
    check_own_address(Address(host, port))
    assert not caplog.records
    socket.create_server(("127.0.0.1", port)).close()  # and is free afterwards


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_taken_port_is_refused_with_its_holder(host: str, taken_port: int, patience: None) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_own_address(Address(host, taken_port))
    message = str(raised.value)
    assert f"the address {host}:{taken_port}" in message
    assert f"port {taken_port} is already taken by this process itself ({os.getpid()})" in message
    assert "same task.index" in message
    assert "\n" not in message


def test_names_another_process_that_holds_the_port(patience: None) -> None:
    program = (
        "import socket, sys\n"
        "with socket.create_server(('127.0.0.1', 0)) as listener:\n"
        "    print(listener.getsockname()[1], flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as holder:
        guard = threading.Timer(20, holder.kill)
        guard.start()
        try:
            assert holder.stdout is not None
            port = int(holder.stdout.readline())
            with pytest.raises(ConfigurationError, match=rf"taken by process {holder.pid} \(.+\); if that is another"):
                check_own_address(Address("127.0.0.1", port))
        finally:
            holder.kill()
            guard.cancel()


def test_says_so_when_the_holder_cannot_be_seen(taken_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def net_connections(kind: str) -> list[object]:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", net_connections)
    with pytest.raises(ConfigurationError, match="taken by another process"):
        check_own_address(Address("127.0.0.1", taken_port))


def test_another_loopback_address_may_use_the_same_port(taken_port: int) -> None:
    check_own_address(Address("127.0.0.2", taken_port))


def test_connections_of_an_earlier_run_do_not_take_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # closing first leaves this side in TIME_WAIT
            assert client.recv(1) == b""
    check_own_address(Address("127.0.0.1", port))


def test_an_address_of_another_machine_is_doubted_not_refused(
    hold_ports: HoldPorts, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = hold_ports(1)
    check_own_address(Address(NOT_THIS_MACHINE, port))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f'the host "{NOT_THIS_MACHINE}" is no address of this machine' in record.message
    assert "task.index" in record.message


def test_an_unknown_name_is_doubted_not_refused(
    hold_ports: HoldPorts, unknown_names: None, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = hold_ports(1)
    check_own_address(Address("worker-o", port))
    assert 'the host "worker-o" does not resolve (Name or service not known)' in caplog.text


def test_an_impossible_name_is_doubted_not_refused(hold_ports: HoldPorts, caplog: pytest.LogCaptureFixture) -> None:
    (port,) = hold_ports(1)
    check_own_address(Address("x" * 64, port))  # names have at most 63 letters between dots
    assert "does not resolve" in caplog.text


@pytest.mark.parametrize("host", [NOT_THIS_MACHINE, "worker-o"])
def test_behind_nat_the_port_must_be_free_on_all_interfaces(
    host: str, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if host == "worker-o":
        answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (NOT_THIS_MACHINE, 0))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    with pytest.raises(ConfigurationError, match=f"port {taken_port} is already taken"):
        check_own_address(Address(host, taken_port))


def test_a_silent_name_server_and_a_slow_process_table_are_not_waited_for(
    hold_ports: HoldPorts, taken_port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answered = threading.Event()

    def answer_late(*_: object, **__: object) -> list[object]:
        answered.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", answer_late)
    monkeypatch.setattr(psutil, "net_connections", answer_late)
    (free_port,) = hold_ports(1)
    try:
        began = time.perf_counter()
        with pytest.raises(ConfigurationError, match="taken by another process"):
            check_own_address(Address("slow", taken_port))
        assert time.perf_counter() - began < 20, "it waits for less than a second, on a machine that is not busy"
        check_own_address(Address("slow", free_port))
    finally:
        answered.set()
    assert 'the host "slow" did not resolve in' in caplog.text


def test_a_port_that_needs_privileges_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_address._Endpoint, "bind_error", lambda _, port: errno.EACCES if port == 80 else 0)
    with pytest.raises(ConfigurationError, match="opening port 80 needs privileges; give this task a free port"):
        check_own_address(Address("127.0.0.1", 80))


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_ipv6() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    with listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"the address \[::1\]:{port}"):
            check_own_address(Address("::1", port))
    check_own_address(Address("::1", port))


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_no_free_ports_are_needed() -> None:
    assert free_ports(0) == ()


@pytest.mark.parametrize(("first", "last"), [(32_768, 60_999), (15_000, 65_535)])
def test_no_outgoing_connection_is_given_a_free_port(
    first: int, last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were the kernel's own choice: a connection of any program took one before its worker listened there."""
    (tmp_path / "range").write_text(f"{first}\t{last}\n")
    monkeypatch.setattr(own_address, "_OUTGOING", tmp_path / "range")
    assert not [port for port in free_ports(50) if first <= port <= last]


@pytest.mark.parametrize("told", ["1024 65535", "", "x", None])
def test_where_the_kernel_leaves_no_ports_it_chooses(
    told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(told or "")
    monkeypatch.setattr(own_address, "_OUTGOING", tmp_path / ("nothing" if told is None else "range"))
    assert len(set(free_ports(20))) == 20
