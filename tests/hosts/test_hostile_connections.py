"""Programs that do not belong to the job connect to every port that it opens: they change nothing and leak nothing.

PACELINE_HOSTILE_CONNECTIONS sets how many (2,000 without it; the release notes' figure is for 10,000).
"""

import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from by_hand import PORT, TRAINING_RANK, start_by_hand, tf_config, wait_for_output
from lab import Lab
from training_rank import weights_digest

from paceline.cluster.tf_config import parse_tf_config
from paceline.rendezvous.key import job_key
from process_table import Seen
from programs import Program

pytestmark = pytest.mark.processes

STRANGERS = Path(__file__).with_name("strangers.py")
NUM_CONNECTIONS = int(os.environ.get("PACELINE_HOSTILE_CONNECTIONS", "2000"))
NUM_VALUES = 10_000
MAX_LEAKED_BYTES_PER_CONNECTION = 4 << 10
"""UCX keeps something of every connection that began like one of its own."""


@dataclass(frozen=True)
class Job:
    """A training of two ranks, with a secret that the strangers do not have."""

    lab: Lab
    variables: dict[str, str]
    key: bytes
    stop_file: Path

    def start(self) -> list[Program]:
        arguments = (TRAINING_RANK, str(NUM_VALUES), self.stop_file)
        return start_by_hand(self.lab, *arguments, variables=self.variables)

    def attack(self, kinds: Sequence[str], ports: Sequence[int]) -> dict[str, float]:
        """From alpha, at beta."""
        words = [self.lab.address("beta"), self.key.hex(), str(NUM_CONNECTIONS), ",".join(kinds), *map(str, ports)]
        ended = self.lab.run("alpha", [sys.executable, STRANGERS, *words])
        assert ended.code == 0, ended.output
        return json.loads(ended.output)

    def assert_trained_well(self, programs: Sequence[Program]) -> None:
        self.stop_file.touch()
        for ended in [program.ended(200) for program in programs]:
            assert ended.code == 0, ended.output
            [line] = ended.lines("{")
            said = json.loads(line)
            assert said["digest"] == weights_digest(NUM_VALUES, said["steps"], 2)


@pytest.fixture
def job(own_two_hosts: Lab, tmp_path: Path) -> Job:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex())
    variables = {"PACELINE_SECRET_FILE": str(secret)}
    cluster, _ = parse_tf_config(tf_config(own_two_hosts.hosts, 1))
    return Job(own_two_hosts, variables, job_key(cluster, variables), tmp_path / "stop")


def test_strangers_at_mpis_ports_change_nothing(job: Job) -> None:
    programs = job.start()
    wait_for_output(programs, "trains")
    processes = job.lab.processes("beta")
    ports = _reachable_ports(processes)
    assert ports, "MPI listens"
    assert PORT not in ports, "a rank's own port is closed once the group stands"
    before = _resources(processes)
    counts = job.attack(["noise", "half", "slow", "http", "ucx"], ports)
    assert sum(count for name, count in counts.items() if name.endswith("connected")) == NUM_CONNECTIONS, counts
    files, memory = _settled(processes, before)
    assert files <= before[0], "no connection is kept"
    assert memory - before[1] <= NUM_CONNECTIONS * MAX_LEAKED_BYTES_PER_CONNECTION + (8 << 20)
    job.assert_trained_well(programs)


@pytest.mark.proof
def test_strangers_at_the_meeting_point_change_nothing(job: Job) -> None:
    """Rank 1 waits for rank 0, which has no port yet; strangers find the port of rank 1."""
    lab = job.lab
    beta = _start_one(job, 1)
    wait_for_output([beta], "waits for 1 of 2")
    processes = lab.processes("beta")
    assert _reachable_ports(processes) == [PORT]
    before = _resources(processes)
    counts = job.attack(["noise", "half", "slow", "http", "wrong", "replayed"], [PORT])
    assert not any("ANSWERED" in name for name in counts), counts
    files, memory = _settled(processes, before)
    assert files <= before[0], "no connection is kept"
    assert memory - before[1] <= 8 << 20
    alpha = _start_one(job, 0)
    wait_for_output([alpha, beta], "trains")
    job.assert_trained_well([alpha, beta])


def _start_one(job: Job, index: int) -> Program:
    host = job.lab.hosts[index]
    settings = {"PYTHONUNBUFFERED": "1", "PACELINE_START_TIMEOUT": "120", **job.variables}
    command = [sys.executable, TRAINING_RANK, str(NUM_VALUES), job.stop_file]
    return job.lab.start(host, command, {**settings, "TF_CONFIG": tf_config(job.lab.hosts, index)})


def _reachable_ports(processes: Sequence[Seen]) -> list[int]:
    """TCP ports on which a host listens for other hosts."""
    ports = set()
    with Path(f"/proc/{processes[0].pid}/net/tcp").open() as table:
        lines = table.readlines()[1:]
    with Path(f"/proc/{processes[0].pid}/net/tcp6").open() as table:
        lines += table.readlines()[1:]
    for line in lines:
        _, local, _, state, *_ = line.split()
        address, _, port = local.rpartition(":")
        if state == "0A" and not address.endswith(_hexadecimal("127.0.0.1")):
            ports.add(int(port, 16))
    return sorted(ports)


def _hexadecimal(address: str) -> str:
    return socket.inet_aton(address)[::-1].hex().upper()


def _resources(processes: Sequence[Seen]) -> tuple[int, int]:
    """Open files and resident bytes."""
    return sum(one.process.num_fds() for one in processes), sum(one.process.memory_info().rss for one in processes)


def _settled(processes: Sequence[Seen], before: tuple[int, int]) -> tuple[int, int]:
    """`_resources`, once no more files are open than `before`, or after a while."""
    give_up_at = time.monotonic() + 60
    while (now := _resources(processes))[0] > before[0] and time.monotonic() < give_up_at:
        time.sleep(0.1)
    return now
