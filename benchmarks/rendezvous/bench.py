"""What does bringing many hosts together cost, without TensorFlow and MPI? See README.md beside this file."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import description  # noqa: E402
import harness  # noqa: E402

PROCESSES = 4


class Party:
    """A process of the job; what it says is read line by line."""

    def __init__(self, lifetimes: contextlib.ExitStack, program: str, arguments: Sequence[object]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / program), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        lifetimes.enter_context(self.process)
        lifetimes.callback(self.process.kill)

    def await_ready(self) -> None:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("it did not start; see above")

    def result(self, told: str = "") -> dict[str, Any]:
        said, _ = self.process.communicate(told, timeout=harness.DEADLINE_SECONDS)
        if self.process.returncode != 0:
            raise RuntimeError("it failed; see above")
        return json.loads(said)


def one_round(num_agents: int) -> tuple[float, float]:
    """Seconds from the first dial to the last release, and the most memory of the head, in megabytes."""
    [port] = harness.free_ports(1)
    told = ["--port", port, "--key", os.urandom(32).hex(), "--nodes", num_agents + 1]
    with contextlib.ExitStack() as lifetimes:
        head = Party(lifetimes, "head.py", told)
        head.await_ready()
        count = num_agents // PROCESSES
        parties = [
            Party(lifetimes, "agents.py", [*told, "--first", 1 + number * count, "--count", count])
            for number in range(PROCESSES)
        ]
        for party in parties:
            party.await_ready()
        for party in parties:
            assert party.process.stdin is not None
            party.process.stdin.write("go\n")
            party.process.stdin.flush()
        times = [party.result() for party in parties]
        served = head.result()
    assert served["exit_code"] == 0, served
    seconds = max(one["released"] for one in times) - min(one["dialled"] for one in times)
    return seconds, served["peak_megabytes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    options = parser.parse_args()
    rounds: dict[int, list[tuple[float, float]]] = {num_agents: [] for num_agents in (8, 32)}
    for _ in range(1 if options.quick else options.repeats):
        for num_agents, measured in rounds.items():
            measured.append(one_round(num_agents))
    rows = []
    for num_agents, measured in rounds.items():
        seconds, megabytes = (harness.Figure.of(values) for values in zip(*measured, strict=True))
        ranks = str(num_agents * description.RANKS_PER_AGENT)
        rows.append([str(num_agents), ranks, str(seconds), str(megabytes)])
    print(harness.table(["agents", "ranks", "seconds: median (spread)", "head's memory in MB, at most"], rows))
    print("\nof 256 ranks: targets ≤ 3 s and ≤ 100 MB")


if __name__ == "__main__":
    main()
