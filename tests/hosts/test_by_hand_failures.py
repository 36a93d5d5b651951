"""Processes started by hand on two hosts, and what can go wrong between hosts: each end has one clear line, in time."""

import time
from pathlib import Path

import pytest
from by_hand import TRAINING_RANK, start_by_hand, wait_for_output
from lab import Lab

from paceline.rendezvous.connection import SILENCE_LIMIT_SECONDS
from process_table import SOON_SECONDS
from programs import LIMIT_SECONDS, Program

pytestmark = pytest.mark.processes

MAX_SECONDS_AFTER_A_LOSS = SILENCE_LIMIT_SECONDS + SOON_SECONDS


def _training(lab: Lab, folder: Path):
    """Two ranks that train until they are ended."""
    programs = start_by_hand(lab, TRAINING_RANK, "1000", folder / "never")
    wait_for_output(programs, "trains")
    return programs


def _assert_ended_because_of(program: Program, host: str) -> None:
    program.process.wait(LIMIT_SECONDS)
    # MPICH may crash when its peer is gone, before the agent has told this rank to end: its line then comes later.
    give_up_at = time.monotonic() + SOON_SECONDS
    while " was stopped, because " not in program.output() and time.monotonic() < give_up_at:
        time.sleep(0.02)
    ended = program.ended()
    assert ended.code != 0
    assert "Traceback" not in ended.output
    lines = [line for line in ended.lines("paceline: rank") if " waits for " not in line]
    assert len(lines) == 1, ended.output
    assert f"{host}, {host}:3000" in lines[0], "the line names the host and its address"


def test_a_pulled_cable_ends_both_sides(own_two_hosts: Lab, tmp_path: Path) -> None:
    alpha, beta = _training(own_two_hosts, tmp_path)
    began = time.monotonic()
    own_two_hosts.set_link("beta", up=False)
    for program, other in ((alpha, "beta"), (beta, "alpha")):
        _assert_ended_because_of(program, other)
    assert time.monotonic() - began <= MAX_SECONDS_AFTER_A_LOSS


@pytest.mark.proof
def test_a_frozen_host_ends_the_other_and_then_itself(own_two_hosts: Lab, tmp_path: Path) -> None:
    alpha, beta = _training(own_two_hosts, tmp_path)
    began = time.monotonic()
    own_two_hosts.freeze("beta")
    _assert_ended_because_of(alpha, "beta")
    assert time.monotonic() - began <= MAX_SECONDS_AFTER_A_LOSS
    own_two_hosts.thaw("beta")
    _assert_ended_because_of(beta, "alpha")


def test_a_host_that_loses_its_power_ends_the_other(own_two_hosts: Lab, tmp_path: Path) -> None:
    alpha, _ = _training(own_two_hosts, tmp_path)
    began = time.monotonic()
    own_two_hosts.kill_host("beta")
    _assert_ended_because_of(alpha, "beta")
    assert time.monotonic() - began <= MAX_SECONDS_AFTER_A_LOSS


@pytest.mark.proof
def test_a_name_that_appears_late_is_waited_for(own_two_hosts: Lab, tmp_path: Path) -> None:
    lab = own_two_hosts
    for host in lab.hosts:
        lab.set_names(host, {host: lab.address(host)})
    stop = tmp_path / "stop"
    stop.touch()
    programs = start_by_hand(lab, TRAINING_RANK, "1000", stop)
    wait_for_output(programs, "waits for 1 of 2")
    assert "name not found" in programs[0].output()
    for host in lab.hosts:
        lab.set_names(host, {other: lab.address(other) for other in lab.hosts})
    for ended in [program.ended() for program in programs]:
        assert ended.code == 0, ended.output


def test_a_wrong_name_is_told(own_two_hosts: Lab, tmp_path: Path) -> None:
    arguments = (TRAINING_RANK, "1000", tmp_path / "never")
    variables = {"PACELINE_START_TIMEOUT": "3"}
    programs = start_by_hand(own_two_hosts, *arguments, variables=variables, hosts=("alfa", "beta"))
    chief, other = (program.ended() for program in programs)
    for ended in (chief, other):
        assert ended.code == 69, ended.output
        assert "Traceback" not in ended.output
    assert "rank 0 at alfa:3000: name not found" in other.output
    assert "rank 1 at beta:3000" in chief.output


@pytest.mark.proof
def test_an_interface_that_leads_nowhere_is_not_taken(own_two_hosts: Lab, tmp_path: Path) -> None:
    """Docker's bridge has the same address on every host, and MPI would take it first."""
    stop = tmp_path / "stop"
    stop.touch()
    for host in own_two_hosts.hosts:
        own_two_hosts.extra_interface(host, "docker0", "172.17.0.1/16")
    for ended in [program.ended() for program in start_by_hand(own_two_hosts, TRAINING_RANK, "1000", stop)]:
        assert ended.code == 0, ended.output
