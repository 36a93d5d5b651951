"""`paceline run --hosts` from a laptop: real OpenSSH, real networks, and what can happen to them."""

import signal
import sys
import time
from pathlib import Path

import pytest
from lab import LAPTOP, Lab
from trained import SCRIPT, assert_trained_alike

from paceline.rendezvous.connection import SILENCE_LIMIT_SECONDS
from process_table import SOON_SECONDS, Seen, until_gone
from programs import LIMIT_SECONDS, Ended, Program

pytestmark = pytest.mark.processes

MAX_SECONDS_AFTER_A_LOSS = SILENCE_LIMIT_SECONDS + SOON_SECONDS
HANGS = """
import time, paceline
from paceline.comm.world import current_world
current_world().group.barrier()
print("trains", paceline.rank(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def lab(may_make_secure_hosts: None):
    """Two hosts with ssh, and a laptop; each test may break them."""
    with Lab(2, ssh=True, laptop=True) as lab:
        yield lab


def _start(lab: Lab, folder: Path, *arguments: str | Path, hosts: str = "alpha:1,beta:1") -> Program:
    command = [sys.executable, "-m", "paceline", "run", "--hosts", hosts, *arguments]
    return lab.start(LAPTOP, command, folder=folder)


def _start_training(lab: Lab, folder: Path) -> Program:
    script = folder / "hangs.py"
    script.write_text(HANGS)
    program = _start(lab, folder, script)
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while program.output().count("trains") < 2:
        assert program.process.poll() is None, program.output()
        assert time.monotonic() < give_up_at, program.output()
        time.sleep(0.02)
    return program


def _python_programs(lab: Lab, *hosts: str) -> list[Seen]:
    return [one for host in hosts for one in lab.processes(host) if one.name.startswith("python")]


def _assert_nothing_left(lab: Lab, *hosts: str) -> None:
    assert not until_gone(lambda: _python_programs(lab, *hosts), MAX_SECONDS_AFTER_A_LOSS)


def _assert_tells_of(ended: Ended, *words: str) -> None:
    assert ended.code != 0
    assert "Traceback" not in ended.output, ended.output
    lines = ended.lines("paceline:")
    assert any(all(word in line for word in words) for line in lines), ended.output


def test_two_hosts_compute_what_one_process_computes(lab: Lab, tmp_path: Path, alone) -> None:
    """With an interface on both hosts that leads nowhere and has the same address on both."""
    for host in lab.hosts:
        lab.extra_interface(host, "docker0", "172.17.0.1/16")
    ended = _start(lab, tmp_path, SCRIPT, tmp_path, hosts="alpha:2,beta:1").ended(200)
    assert ended.code == 0, ended.output
    trained = assert_trained_alike(tmp_path, 3, alone)
    for host in lab.hosts:
        assert min(lab.bytes(host)) >= trained["gradient_bytes"] / 2
    _assert_nothing_left(lab, *lab.hosts)


def test_an_interrupt_leaves_no_process_on_any_host(lab: Lab, tmp_path: Path) -> None:
    program = _start_training(lab, tmp_path)
    lab.process_of(program).send_signal(signal.SIGINT)
    assert program.ended().code == 130
    _assert_nothing_left(lab, *lab.hosts)


def test_a_killed_launcher_leaves_no_process_on_any_host(lab: Lab, tmp_path: Path) -> None:
    program = _start_training(lab, tmp_path)
    lab.process_of(program).kill()
    program.ended()
    _assert_nothing_left(lab, *lab.hosts)


def test_a_pulled_cable_is_told_and_ends_all(lab: Lab, tmp_path: Path) -> None:
    program = _start_training(lab, tmp_path)
    began = time.monotonic()
    lab.set_link("beta", up=False)
    ended = program.ended()
    assert time.monotonic() - began <= MAX_SECONDS_AFTER_A_LOSS
    _assert_tells_of(ended, "beta")
    _assert_nothing_left(lab, *lab.hosts)


def test_a_frozen_host_is_told(lab: Lab, tmp_path: Path) -> None:
    program = _start_training(lab, tmp_path)
    began = time.monotonic()
    lab.freeze("beta")
    ended = program.ended()
    assert time.monotonic() - began <= MAX_SECONDS_AFTER_A_LOSS
    _assert_tells_of(ended, "beta")
    lab.thaw("beta")
    _assert_nothing_left(lab, *lab.hosts)


def test_a_killed_agent_is_told_and_ends_all(lab: Lab, tmp_path: Path) -> None:
    program = _start_training(lab, tmp_path)
    agent = next(one for one in _python_programs(lab, "beta") if "remote_agent" in " ".join(one.command))
    began = time.monotonic()
    agent.send(signal.SIGKILL)
    ended = program.ended()
    assert time.monotonic() - began <= MAX_SECONDS_AFTER_A_LOSS
    _assert_tells_of(ended, "beta")
    _assert_nothing_left(lab, *lab.hosts)


def test_an_unknown_host_is_told(lab: Lab, tmp_path: Path) -> None:
    _assert_tells_of(_start(lab, tmp_path, SCRIPT, hosts="alpha:1,nosuch:1").ended(), "nosuch")
    _assert_nothing_left(lab, *lab.hosts)


def test_a_host_without_a_server_is_told(lab: Lab, tmp_path: Path) -> None:
    for process in lab.processes("beta"):
        process.send(signal.SIGKILL)
    _assert_tells_of(_start(lab, tmp_path, SCRIPT).ended(), "beta")
    _assert_nothing_left(lab, *lab.hosts)


def test_a_host_that_nothing_reaches_is_told(lab: Lab, tmp_path: Path) -> None:
    lab.set_link("beta", up=False)
    _assert_tells_of(_start(lab, tmp_path, SCRIPT).ended(), "beta")
    _assert_nothing_left(lab, *lab.hosts)
