"""Servers of a cluster whose processes are started by hand: they serve, and end with the chief."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ports import HoldPorts
from process_table import SOON_SECONDS
from programs import Program

pytestmark = pytest.mark.processes

TASK = Path(__file__).with_name("serving_task.py")
LIMIT_SECONDS = 200.0


class Cluster:
    """The processes of a cluster on this host, by task."""

    def __init__(self, ports: Sequence[int], folder: Path) -> None:
        self._folder = folder
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self._addresses = {"chief": addresses[:1], "worker": addresses[1:-1], "ps": addresses[-1:]}
        self.programs: dict[str, Program] = {}

    def start(self, type_: str, index: int = 0, end: str = "well", **variables: str) -> Program:
        config = json.dumps({"cluster": self._addresses, "task": {"type": type_, "index": index}})
        program = Program([sys.executable, TASK, end], self._folder, {"TF_CONFIG": config, **variables})
        self.programs[f"{type_} {index}"] = program
        return program

    def start_all(self, end: str) -> None:
        for index in range(len(self._addresses["worker"])):
            self.start("worker", index, end)
        self.start("ps", 0, end)
        self.start("chief", 0, end)

    def codes(self) -> dict[str, int]:
        return {name: program.ended(LIMIT_SECONDS).code for name, program in self.programs.items()}

    def wait_for(self, name: str, text: str) -> None:
        program = self.programs[name]
        give_up_at = time.monotonic() + LIMIT_SECONDS
        while text not in program.output():
            assert program.process.poll() is None, program.output()
            assert time.monotonic() < give_up_at, program.output()
            with suppress(subprocess.TimeoutExpired):
                program.process.wait(0.05)


@pytest.fixture
def cluster(hold_ports: HoldPorts, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(hold_ports(3), tmp_path)
    yield made
    for program in made.programs.values():
        program.kill()
        program.close()


@pytest.mark.proof
@pytest.mark.parametrize(("end", "code"), [("well", 0), ("raise", 1), ("exit", 7)])
def test_servers_end_with_the_code_of_the_chief(cluster: Cluster, end: str, code: int):
    cluster.start_all(end)
    ended = {name: program.ended(LIMIT_SECONDS) for name, program in cluster.programs.items()}
    assert {name: one.code for name, one in ended.items()} == {"worker 0": code, "ps 0": code, "chief 0": code}, ended
    assert "trained 4" in ended["chief 0"].output
    assert ("ValueError: the script failed" in ended["chief 0"].output) is (end == "raise")


@pytest.mark.proof
def test_servers_of_tensorflows_own_are_used_and_not_ended(cluster: Cluster):
    """They have no function that the chief could call, and were taken for servers that had ended."""
    cluster.start("worker", 0, "plain")
    cluster.start("ps", 0, "plain")
    chief = cluster.start("chief").ended(LIMIT_SECONDS)
    assert chief.code == 0, chief.output
    assert "trained 4" in chief.output
    assert "TensorFlow's own servers run as worker 0, ps 0, and do not end with this job" in chief.output
    assert [cluster.programs[name].process.poll() for name in ("worker 0", "ps 0")] == [None, None]


@pytest.mark.proof
def test_a_chief_keeps_an_exit_code_that_nobody_can_know_in_advance(cluster: Cluster):
    cluster.start_all("leave")
    assert cluster.codes() == {"worker 0": 0, "ps 0": 0, "chief 0": 7}


@pytest.mark.proof
@pytest.mark.parametrize(("end", "code"), [("well", 0), ("raise", 1)])
@pytest.mark.parametrize("time", range(30))
def test_every_run_ends_with_the_code_of_the_chief(cluster: Cluster, time: int, end: str, code: int):
    cluster.start_all(end)
    assert set(cluster.codes().values()) == {code}


def test_servers_of_a_killed_chief_end_and_say_why(cluster: Cluster):
    cluster.start_all("wait")
    cluster.wait_for("chief 0", "trained")
    cluster.programs["chief 0"].process.kill()
    for name in ("worker 0", "ps 0"):
        program = cluster.programs[name]
        assert program.process.wait(SOON_SECONDS) == 69
        (why,) = program.ended(LIMIT_SECONDS).lines(f"paceline: {name} ends")
        assert why.endswith("was killed, or its host is lost. Start all processes again. [chief-lost]")


@pytest.mark.proof
def test_the_chief_names_a_parameter_server_that_is_lost(cluster: Cluster):
    cluster.start_all("read")
    cluster.wait_for("chief 0", "trained")
    cluster.programs.pop("ps 0").kill()
    ended = {name: program.ended(LIMIT_SECONDS) for name, program in cluster.programs.items()}
    assert {name: one.code for name, one in ended.items()} == {"worker 0": 1, "chief 0": 1}, ended
    assert re.search(
        r"paceline: lost with its variables: ps 0 at 127.0.0.1:\d+\. Start all.*\[server-lost\]",
        ended["chief 0"].output,
    )


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.proof), signal.SIGINT])
def test_a_signal_ends_a_server_at_once(cluster: Cluster, number: signal.Signals):
    """TensorFlow's server ignores SIGTERM."""
    ps = cluster.start("ps")
    cluster.wait_for("ps 0", "paceline: ps 0 serves at ")
    ps.process.send_signal(number)
    assert ps.process.wait(SOON_SECONDS) == -number


@pytest.mark.proof
def test_a_server_whose_port_is_taken_says_so_and_the_other_serves_until_a_signal(cluster: Cluster):
    ps = cluster.start("ps")
    cluster.wait_for("ps 0", "paceline: ps 0 serves at ")
    second = cluster.start("ps").ended(LIMIT_SECONDS)
    assert second.code == 78
    assert "Traceback" not in second.output
    assert re.search(
        r"paceline: TF_CONFIG gives this process the address 127.0.0.1:\d+, but .* \[port\]", second.output
    )
    ps.process.terminate()
    assert ps.process.wait(SOON_SECONDS) == -signal.SIGTERM
    ps.close()


@pytest.mark.proof
def test_who_does_not_come_is_named_in_time(cluster: Cluster):
    cluster.start("ps", PACELINE_START_TIMEOUT="3")
    cluster.wait_for("ps 0", "paceline: ps 0 serves at ")
    alone = cluster.programs["ps 0"].ended(LIMIT_SECONDS)
    assert re.search(r"ps 0 waits for 1 of 1: the chief at \S+ \(connection refused: not started\?\)", alone.output)
    assert "did not come within 3 s. Start it. [start-timeout]" in alone.output
    chief = cluster.start("chief", 0, "well", PACELINE_START_TIMEOUT="10").ended(LIMIT_SECONDS)
    assert chief.code == 69
    refused = r"\(connection refused: not started\?\)"
    assert re.search(
        rf"the chief waits for 2 of 2: worker 0 at \S+ {refused}, ps 0 at \S+ {refused} - \d s left", chief.output
    )
    assert "2 of 2 servers did not come in time (start timeout of the chief: 10 s):\n  worker 0 at 127" in chief.output
    assert "Traceback" not in chief.output
