"""What the benchmarks share: peers' environments, starting ranks by hand, statistics, and the printed table."""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACELINE = [sys.executable, "-m", "paceline"]
DEADLINE_SECONDS = 300
_PEERS = {
    "tf_keras": ["tensorflow-cpu==2.21.0", "tf_keras==2.21.0"],
    "torch": ["torch==2.13.0", "numpy"],
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A quantity over the rounds: its median and its spread."""

    median: float
    smallest: float
    largest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.smallest:.3g}–{self.largest:.3g})"


def peer_python(name: str) -> str | None:
    """The interpreter of a peer's own environment, made when first needed; None where it cannot be had."""
    directory = HERE / ".environments" / name
    python = directory / "bin" / "python"
    if not (directory / "complete").exists():
        print(f"making the environment of {name} (once; some minutes)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        installed = subprocess.run([str(python), "-m", "pip", "install", "-q", *_PEERS[name]], check=False)
        if installed.returncode != 0:
            print(f"{name} could not be installed: its rows are left out", flush=True)
            return None
        (directory / "complete").touch()
    return str(python)


def run_job(command: Sequence[str], ranks: int = 1, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Runs `command`, which writes a JSON object to the file named by BENCH_RESULT, and returns the object."""
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory, "result.json")
        variables = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "BENCH_RESULT": str(result),
            **(environment or {}),
        }
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
        )
        if done.returncode != 0 or not result.exists():
            raise RuntimeError(
                f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"[-4000:]
            )
        return json.loads(result.read_text())


def run_ranks(command: Sequence[str], ranks: int, variables_of: Callable[[int], Mapping[str, str]]) -> dict[str, Any]:
    """Starts `ranks` processes of `command` by hand, each on a core of its own; rank 0 writes BENCH_RESULT."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory, "result.json")
        processes = []
        for rank in range(ranks):
            core = cores[rank % len(cores)]
            variables = {
                **os.environ,
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "OMP_NUM_THREADS": "1",
                "BENCH_RESULT": str(result),
                **variables_of(rank),
            }
            bound = [sys.executable, "-c", BIND.format(core=core), *command]
            with Path(directory, f"{rank}.log").open("w") as log:
                processes.append(subprocess.Popen(bound, env=variables, stdout=log, stderr=subprocess.STDOUT))
        try:
            codes = [process.wait(DEADLINE_SECONDS) for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(codes) or not result.exists():
            logs = "\n".join(Path(directory, f"{rank}.log").read_text()[-2000:] for rank in range(ranks))
            raise RuntimeError(f"{' '.join(command)} ended with {codes}:\n{logs}")
        return json.loads(result.read_text())


BIND = "import os, sys; os.sched_setaffinity(0, {{{core}}}); os.execv(sys.argv[1], sys.argv[1:])"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(len(str(row[column])) for row in [headers, *rows]) for column in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(str(cell).ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(headers), line(["-" * width for width in widths]), *map(line, rows)])
