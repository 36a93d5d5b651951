"""`paceline doctor --hosts` from a laptop: real OpenSSH, and networks that are slow or cut."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import namespaces
import pytest
from lab import LAPTOP, Lab

from process_table import SOON_SECONDS, Seen, until_gone
from programs import Program

pytestmark = pytest.mark.processes

LIMIT_SECONDS = 100.0
HOSTS = ("alpha", "beta", "gamma")
SLOW_MBIT = 20.0
FAST_MBIT = 400.0
"""Of hosts beside a slow one: what this machine's cores do at the moment makes no difference then."""


@pytest.fixture
def lab(may_make_secure_hosts: None) -> Iterator[Lab]:
    with Lab(len(HOSTS), ssh=True, laptop=True) as lab:
        yield lab


def start(lab: Lab, *words: str) -> Program:
    return lab.start(LAPTOP, [sys.executable, "-m", "paceline", "doctor", "--json", "--hosts", *words])


def examined(lab: Lab, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what was told."""
    ended = start(lab, *words).ended(LIMIT_SECONDS)
    assert "Traceback" not in ended.output, ended.output
    told: dict[str, Any] = json.loads(ended.output[ended.output.index("{") : ended.output.rindex("}") + 1])
    assert told["can_run"] == (ended.code == 0)
    return ended.code, told


def wrong(told: dict[str, Any], check: str) -> list[dict[str, Any]]:
    return [one for one in told["findings"] if one["check"] == check and one["severity"] != "ok"]


def left(lab: Lab) -> list[Seen]:
    return [one for host in (*lab.hosts, LAPTOP) for one in lab.processes(host) if one.name.startswith("python")]


def test_the_host_with_a_slow_link_is_named(may_make_secure_hosts: None) -> None:
    """After a second round, in which it is measured with the host that it has not met."""
    with Lab(4, ssh=True, laptop=True) as lab:
        for host in lab.hosts:
            lab.limit_bandwidth(host, SLOW_MBIT if host == "beta" else FAST_MBIT)
        code, told = examined(lab, ",".join(lab.hosts))
        assert not until_gone(lambda: left(lab), SOON_SECONDS)
    assert code == 0
    (network,) = wrong(told, "network")
    assert (network["severity"], network["host"]) == ("warning", "beta")
    assert "slow with alpha, gamma and delta" in network["text"]
    rates = {frozenset(one["hosts"]): one["bytes_per_second"] * 8e-6 for one in told["pairs"]}
    assert rates[frozenset(("alpha", "beta"))] < SLOW_MBIT * 1.2
    assert rates[frozenset(("gamma", "delta"))] > SLOW_MBIT * 3


def test_a_host_that_nothing_reaches_is_named_and_the_others_are_examined(lab: Lab) -> None:
    lab.set_link("gamma", up=False)
    code, told = examined(lab, "alpha,beta:2,gamma,nosuch")
    assert code == 1
    assert [one["host"] for one in wrong(told, "ssh")] == ["gamma", "nosuch"]
    assert list(told["hosts"]) == ["alpha", "beta"]
    assert [one["fault"] for one in told["pairs"]] == [""]
    assert told["hosts"]["beta"]["hostname"] == "beta"


@pytest.mark.proof
def test_a_host_whose_loopback_is_down(lab: Lab) -> None:
    """A port can be opened there all the same, but no process reaches it."""
    down = ["ip", "link", "set", "lo", "down"]
    assert lab.run("alpha", down, {"PATH": namespaces.SEARCH_PATH}).code == 0
    code, told = examined(lab, "alpha")
    assert code == 1
    (ports,) = wrong(told, "ports")
    assert (ports["severity"], ports["host"]) == ("error", "alpha")
    assert "127.0.0.1" in ports["text"]


def test_two_hosts_that_do_not_reach_each_other_are_named(lab: Lab) -> None:
    route = ["ip", "route", "add", "unreachable", f"{lab.address('beta')}/32"]
    assert lab.run("alpha", route, {"PATH": namespaces.SEARCH_PATH}).code == 0
    code, told = examined(lab, ",".join(HOSTS))
    assert code == 1
    (network,) = wrong(told, "network")
    assert (network["severity"], network["host"]) == ("error", "")
    assert network["text"].startswith("alpha cannot connect to beta: 10.77.0.2 (No route to host)")
    assert len(told["pairs"]) == len(HOSTS)


@pytest.mark.proof
def test_a_host_that_hangs_meanwhile_is_named(lab: Lab) -> None:
    program = start(lab, ",".join(HOSTS))
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not any("host_side" in " ".join(one.command) for one in lab.processes("gamma")):
        assert time.monotonic() < give_up_at, program.kill()
        time.sleep(0.01)
    lab.freeze("gamma")
    ended = program.ended(LIMIT_SECONDS)
    assert ended.code == 1, ended.output
    told = json.loads(ended.output[ended.output.index("{") : ended.output.rindex("}") + 1])
    (lost,) = wrong(told, "ssh")
    assert lost["host"] == "gamma"
    assert list(told["hosts"]) == ["alpha", "beta"]
    lab.thaw("gamma")
    assert not until_gone(lambda: left(lab), SOON_SECONDS)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.proof), signal.SIGKILL])
def test_its_end_leaves_no_process_on_any_host(lab: Lab, number: signal.Signals) -> None:
    lab.freeze("gamma")
    program = start(lab, ",".join(HOSTS))
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while "waits for 3 hosts" not in program.output():
        assert time.monotonic() < give_up_at, program.kill()
        time.sleep(0.05)
    lab.process_of(program).send_signal(number)
    assert program.ended(LIMIT_SECONDS).code == (130 if number == signal.SIGINT else -number)
    lab.thaw("gamma")
    assert not until_gone(lambda: left(lab), SOON_SECONDS)
