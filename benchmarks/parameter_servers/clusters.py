"""Starts a cluster of one script, and measures turns of its chief from outside."""

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import harness

HERE = Path(__file__).parent
ROLES = ("chief", "worker 0", "worker 1", "ps 0")
"""The workers have a core each; chief and parameter server may run on all."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Turn:
    """What is measured: seconds, and the processor seconds of each process, by role."""

    seconds: float
    processor: Mapping[str, float]


class Cluster:
    """Whose chief waits for turns.

    Args:
        chief: Reads the names of variants from stdin, and says on stdout when what is measured begins and ends.
        pids: By role.
        log: What the chief has written on stderr.
    """

    def __init__(self, chief: subprocess.Popen, pids: Mapping[str, int], log: Path) -> None:
        self._chief = chief
        self._pids = pids
        self._log = log

    def turn(self, variant: str) -> Turn:
        """Raises RuntimeError if the chief has ended, or says nothing for `harness.DEADLINE_SECONDS`."""
        self._chief.stdin.write(json.dumps(variant).encode() + b"\n")
        began, before = self._at("begin")
        ended, after = self._at("end")
        return Turn(ended - began, {role: after[role] - before[role] for role in self._pids})

    def _at(self, word: str) -> tuple[float, Mapping[str, float]]:
        """When the chief says `word`, and what the processes have used by then."""
        told = select.select([self._chief.stdout], [], [], harness.DEADLINE_SECONDS)[0]
        line = self._chief.stdout.readline().decode().strip() if told else "nothing in time"
        if line != word:
            raise RuntimeError(f"the chief said {line!r}, expected {word!r}:\n{self._log.read_text()[-3000:]}")
        return time.perf_counter(), {role: _processor_seconds(pid) for role, pid in self._pids.items()}


@contextlib.contextmanager
def running(python: str, script: str) -> Iterator[Cluster]:
    """A cluster of processes, all started in the same way, while the block lasts."""
    cores = sorted(os.sched_getaffinity(0))
    addresses = dict(zip(ROLES, (f"127.0.0.1:{port}" for port in harness.free_ports(len(ROLES))), strict=True))
    cluster: dict[str, list[str]] = {}
    for role, address in addresses.items():
        cluster.setdefault(role.split()[0], []).append(address)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes = {}
        for role in ROLES:
            kind, _, index = role.partition(" ")
            variables = {
                **os.environ,
                "CUDA_VISIBLE_DEVICES": "-1",
                "OMP_NUM_THREADS": "1",
                "TF_NUM_INTRAOP_THREADS": "1",
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": int(index or 0)}}),
            }
            own = {cores[int(index) % len(cores)]} if kind == "worker" else set(cores)
            command = [
                python,
                "-c",
                f"import os, sys; os.sched_setaffinity(0, {own}); os.execv(sys.argv[1], sys.argv[1:])",
            ]
            log = stack.enter_context((directory / f"{role}.log").open("w"))
            pipe = subprocess.PIPE if kind == "chief" else subprocess.DEVNULL
            processes[role] = subprocess.Popen(
                [*command, python, str(HERE / script)], bufsize=0, env=variables, stdin=pipe, stdout=pipe, stderr=log
            )
            stack.callback(_end, processes[role])
        yield Cluster(
            processes["chief"], {role: process.pid for role, process in processes.items()}, directory / "chief.log"
        )


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
