"""The lab itself: what it promises to the tests that use it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import INTERFACE, LAPTOP, Lab

from process_table import running, until_gone

pytestmark = pytest.mark.processes

_SENDS = "import socket; c = socket.create_connection(('beta', 4000)); c.sendall(bytes({0})); c.shutdown(1); c.recv(1)"
_RECEIVES = """
import socket, time
server = socket.create_server(("", 4000)); print("listens", flush=True)
c, _ = server.accept(); n = 0; began = time.monotonic()
while data := c.recv(1 << 20): n += len(data)
print(n, time.monotonic() - began, flush=True)
"""


def _transfer(lab: Lab, num_bytes: int) -> float:
    """Seconds that so many bytes take from alpha to beta."""
    receiver = lab.start("beta", [sys.executable, "-c", _RECEIVES])
    while "listens" not in receiver.output():
        assert receiver.process.poll() is None, receiver.output()
        time.sleep(0.01)
    assert lab.run("alpha", [sys.executable, "-c", _SENDS.format(num_bytes)]).code == 0
    received, seconds = receiver.ended().lines()[-1].split()
    assert int(received) == num_bytes
    return float(seconds)


def test_hosts_have_names_of_their_own(two_hosts: Lab) -> None:
    for host in two_hosts.hosts:
        assert two_hosts.run(host, ["hostname"]).output == f"{host}\n"
        seen = two_hosts.run(host, ["getent", "hosts", "alpha", "beta"]).output.split()
        assert seen == ["10.77.0.1", "alpha", "10.77.0.2", "beta"]
        assert two_hosts.run(host, ["getent", "hosts", "gamma"]).code == 2


def test_hosts_see_their_own_interfaces_and_processes(two_hosts: Lab) -> None:
    assert sorted(two_hosts.run("alpha", ["ls", "/sys/class/net"]).output.split()) == [INTERFACE, "lo"]
    assert len(two_hosts.run("alpha", ["ps", "-e", "--no-headers"]).output.splitlines()) == 2, "process 1, and ps"


def test_bytes_are_counted(two_hosts: Lab) -> None:
    before = two_hosts.bytes("beta")
    _transfer(two_hosts, 1_000_000)
    assert two_hosts.bytes("beta")[0] - before[0] >= 1_000_000


def test_bandwidth_is_limited(own_two_hosts: Lab) -> None:
    own_two_hosts.limit_bandwidth("beta", 80)
    assert _transfer(own_two_hosts, 10_000_000) >= 0.8, "10 MB at 10 MB/s"


def test_a_pulled_cable_can_be_plugged_in_again(own_two_hosts: Lab) -> None:
    asks = [sys.executable, "-c", "import socket; socket.create_connection(('beta', 4001), timeout=3)"]
    assert "refused" in own_two_hosts.run("alpha", asks).output
    own_two_hosts.set_link("beta", up=False)
    assert "timed out" in own_two_hosts.run("alpha", asks).output
    own_two_hosts.set_link("beta", up=True)
    assert "refused" in own_two_hosts.run("alpha", asks).output


def test_a_laptop_calls_the_hosts_over_ssh(may_make_secure_hosts: None) -> None:
    with Lab(2, ssh=True, laptop=True) as lab:
        for host in lab.hosts:
            assert lab.run(LAPTOP, ["ssh", host, "hostname"]).output == f"{host}\n"
        assert "refused" in lab.run("alpha", ["ssh", LAPTOP, "hostname"]).output


def test_nothing_is_left(may_make_hosts: None) -> None:
    interfaces = _machines_interfaces()
    with Lab(2) as lab:
        lab.start("alpha", ["sh", "-c", "setsid sleep 1000 & exec sleep 1000"])
        lab.extra_interface("alpha", "docker0", "172.17.0.1/16")
        while len(lab.processes("alpha")) < 2:
            time.sleep(0.01)
        inside = [*lab.processes("alpha"), *lab.processes("beta")]
        folder = lab.folder
    assert not folder.exists()
    assert not until_gone(lambda: running(one.pid for one in inside))
    assert _machines_interfaces() == interfaces


def test_nothing_is_left_after_the_death_of_the_test_process(tmp_path: Path, may_make_hosts: None) -> None:
    program = (
        f"import sys, os; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}\n"
        "from lab import Lab\n"
        "lab = Lab(1).__enter__()\n"
        "lab.start('alpha', ['sleep', '1000'])\n"
        "while not lab.processes('alpha'): pass\n"
        "print(*[one.pid for one in lab.processes('alpha')], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=variables)
    assert ended.returncode == -9, ended.stderr
    assert not until_gone(lambda: running(map(int, ended.stdout.split())))


def _machines_interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}
