"""What a user measures: three jobs of two processes each, pinned alike, which take turns block by block.

    plain     two processes of plain Keras, which know nothing of each other
    raw       the same, and after each batch MPI's own all-reduce of as many bytes as the gradient
    paceline  the same script under `paceline run --workers 2`

All stay alive for the whole measurement; those that do not have the turn wait in a callback.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import harness

HERE = Path(__file__).parent
RANKS = 2
JOBS: Mapping[str, tuple[str, Mapping[str, str]]] = {kind: (kind, {}) for kind in ("plain", "raw", "paceline")}
"""By name: the kind, and more variables of the environment."""
Block = dict[str, dict[str, float]]
"""Of each job the slower rank's milliseconds a step (`step_ms`) and the ranks' mean of processor time (`cpu_ms`)."""


def measure(blocks: int, jobs: Mapping[str, tuple[str, Mapping[str, str]]] = JOBS) -> list[Block]:
    """Runs the jobs in turns; the first turn of each warms up and is left out.

    Args:
        blocks: How many other turns each job has.
        jobs: As `JOBS`.
    """
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        done = _fifo(directory / "done")
        go = {job: [_fifo(directory / f"{job}-{rank}.go") for rank in range(RANKS)] for job in jobs}
        for job, (kind, variables) in jobs.items():
            stack.enter_context(_running(job, kind, directory, {**variables, "BENCH_BLOCKS": str(blocks)}))
        results = stack.enter_context(os.fdopen(done, "rb", 0))

        def next_result() -> dict[str, Any]:
            if not select.select([results], [], [], harness.DEADLINE_SECONDS)[0]:
                logs = "\n".join((directory / f"{job}.log").read_text()[-2000:] for job in jobs)
                raise RuntimeError(f"no job has ended its turn in {harness.DEADLINE_SECONDS} seconds:\n{logs}")
            return json.loads(results.readline())

        return [_block(go, next_result) for _ in range(blocks + 1)][1:]


def _block(go: Mapping[str, Sequence[int]], next_result: Callable[[], dict[str, Any]]) -> Block:
    """A turn of each job."""
    block = {}
    for job in go:
        for descriptor in go[job]:
            os.write(descriptor, b"g")
        ranks = [next_result() for _ in range(RANKS)]
        assert all(rank["job"] == job for rank in ranks)
        block[job] = {
            "step_ms": max(rank["step_ms"] for rank in ranks),
            "cpu_ms": sum(rank["cpu_ms"] for rank in ranks) / RANKS,
        }
    return block


def _fifo(path: Path) -> int:
    os.mkfifo(path)
    return os.open(path, os.O_RDWR)  # both ends: opening does not wait, and the pipe has no end while this is open


@contextlib.contextmanager
def _running(job: str, kind: str, directory: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """The two processes of `job`, until they have had all their turns."""
    python = [sys.executable, str(HERE / "one_fit.py"), str(directory), job, kind]
    commands = {
        "plain": [python] * RANKS,
        "raw": [[str(Path(sys.executable).with_name("mpiexec")), "-bind-to", "none", "-n", str(RANKS), *python]],
        "paceline": [[*harness.PACELINE, "run", "--workers", str(RANKS), *python[1:]]],
    }
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_NUM_THREADS": "1",  # as Paceline gives them to workers of one core
        "TF_NUM_INTRAOP_THREADS": "1",
        **variables,
    }
    processes = []
    try:
        with (directory / f"{job}.log").open("w") as log:
            for rank, command in enumerate(commands[kind]):
                given = {**environment, "BENCH_RANK": str(rank)}
                processes.append(subprocess.Popen(command, env=given, stdout=log, stderr=subprocess.STDOUT))
        yield
        for process in processes:
            process.wait(harness.DEADLINE_SECONDS)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
